#include "runtime/common/http/cpprest_transport.h"

#include <cpprest/http_client.h>
#include <cpprest/producerconsumerstream.h>
#include <openssl/ssl.h>
#include <pplx/threadpool.h>
#include <sys/stat.h>

#include <boost/asio/ssl/context.hpp>
#include <future>
#include <optional>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/http/proxy.h"

namespace lockstep::http {
namespace {

using web::http::http_request;
using web::http::http_response;
using web::http::client::http_client;
using web::http::client::http_client_config;

// Changes when a file is rotated; a client is reused while its stamps are equal.
std::string StampOf(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return "";
  return std::to_string(info.st_ino) + ":" + std::to_string(info.st_mtim.tv_sec) + ":" +
         std::to_string(info.st_mtim.tv_nsec) + ":" + std::to_string(info.st_size);
}

void ConfigureTls(const Endpoint& endpoint, boost::asio::ssl::context& context) {
  namespace ssl = boost::asio::ssl;
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                      ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  if (!endpoint.ca_file.empty()) {
    // The library has added all public authorities, none of which may vouch for this server.
    ::SSL_CTX_set_cert_store(context.native_handle(), ::X509_STORE_new());
    context.load_verify_file(endpoint.ca_file);
  }
  if (!endpoint.certificate_file.empty()) {
    context.use_certificate_chain_file(endpoint.certificate_file);
    context.use_private_key_file(endpoint.key_file, ssl::context::pem);
  }
}

// The library passes the host of the URL to the resolver, which does not accept brackets. It takes the text
// after the last colon as the port, so that the URL always needs one.
std::string WithoutBrackets(const std::string& url) {
  const std::size_t open = url.find("://[");
  const std::size_t close = url.find(']', open);
  if (open == std::string::npos || close == std::string::npos) return url;
  std::string rest = url.substr(close + 1);
  if (!rest.starts_with(':')) rest = (url.starts_with("https:") ? ":443" : ":80") + rest;
  return url.substr(0, open + 3) + url.substr(open + 4, close - open - 4) + rest;
}

std::string ProxyOf(const Endpoint& endpoint) {
  if (!endpoint.proxy_url.empty() || !endpoint.use_proxy_environment) return endpoint.proxy_url;
  return ProxyFor(endpoint.url, [](const char* name) { return EnvOr(name, ""); });
}

std::shared_ptr<http_client> NewClient(const Endpoint& endpoint) {
  http_client_config config;
  // Exchange enforces deadlines: the library's timer covers neither a connect nor a whole exchange.
  config.set_timeout(std::chrono::hours(24));
  const std::string proxy = ProxyOf(endpoint);
  if (!proxy.empty()) config.set_proxy(web::web_proxy(web::uri(WithoutBrackets(proxy))));
  config.set_ssl_context_callback(
      [endpoint](boost::asio::ssl::context& context) { ConfigureTls(endpoint, context); });
  return std::make_shared<http_client>(web::uri(WithoutBrackets(endpoint.url)), config);
}

http_request BuildRequest(const Request& request, const std::string& server_name, const std::string& token) {
  http_request built(request.method);
  built.set_request_uri(web::uri(request.target));
  // The library uses this header for SNI and compares the certificate with it.
  if (!server_name.empty()) built.headers().add("Host", server_name);
  for (const auto& [name, value] : request.headers) built.headers().add(name, value);
  if (!token.empty()) built.headers().add("Authorization", "Bearer " + token);
  if (!request.body.empty()) {
    const auto type = request.headers.find("Content-Type");
    built.set_body(request.body, type == request.headers.end() ? "application/json" : type->second);
  }
  return built;
}

std::map<std::string, std::string> LowerCaseHeaders(const http_response& response) {
  std::map<std::string, std::string> headers;
  for (const auto& [name, value] : response.headers()) {
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    headers[lower] = value;
  }
  return headers;
}

// Waits for a pplx task with a deadline; cancels the request when the time is over or `stop` is requested.
class Exchange {
 public:
  Exchange(std::stop_token stop, std::chrono::milliseconds timeout)
      : timeout_(timeout), stopped_(std::move(stop), [this] { source_.cancel(); }) {}

  [[nodiscard]] pplx::cancellation_token token() const { return source_.get_token(); }
  void Cancel() { source_.cancel(); }

  template <typename T>
  Result<T> Wait(pplx::task<T> task) {
    auto promise = std::make_shared<std::promise<T>>();
    std::future<T> future = promise->get_future();
    task.then([promise](pplx::task<T> done) {
      try {
        promise->set_value(done.get());
      } catch (...) {
        promise->set_exception(std::current_exception());
      }
    });
    const bool timed_out = future.wait_for(timeout_) != std::future_status::ready;
    if (timed_out) source_.cancel();
    try {
      return future.get();
    } catch (const std::exception& exception) {
      if (timed_out) return Error{ErrorCode::kDeadlineExceeded, "no answer within " + Text(timeout_)};
      if (stopped_requested()) return Error{ErrorCode::kCancelled, "stopped"};
      return Error{ErrorCode::kUnavailable, exception.what()};
    }
  }

 private:
  static std::string Text(std::chrono::milliseconds time) { return std::to_string(time.count()) + " ms"; }
  [[nodiscard]] bool stopped_requested() const { return source_.get_token().is_canceled(); }

  std::chrono::milliseconds timeout_;
  pplx::cancellation_token_source source_;
  std::stop_callback<std::function<void()>> stopped_;
};

using Buffer = concurrency::streams::producer_consumer_buffer<uint8_t>;

enum class StreamEnd { kByServer, kByHandler };

// Passes each piece to `on_chunk` as it arrives: waits for one byte, then takes all that has arrived.
Result<StreamEnd> ReadChunks(Buffer& buffer, Exchange& exchange, const ChunkHandler& on_chunk) {
  std::string chunk;
  while (true) {
    LOCKSTEP_TRY(const int first, exchange.Wait(buffer.bumpc()));
    if (first == Buffer::traits::eof()) return StreamEnd::kByServer;
    const std::size_t rest = buffer.in_avail();
    chunk.assign(1, static_cast<char>(first));
    chunk.resize(1 + rest);
    std::size_t got = 1;
    if (rest > 0) {
      LOCKSTEP_TRY(const std::size_t more,
                   exchange.Wait(buffer.getn(reinterpret_cast<uint8_t*>(chunk.data()) + 1, rest)));
      got += more;
    }
    chunk.resize(got);
    if (!on_chunk(chunk)) {
      exchange.Cancel();
      return StreamEnd::kByHandler;
    }
  }
}

class CpprestTransport final : public HttpTransport {
 public:
  explicit CpprestTransport(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Result<Response> Send(const Request& request, std::stop_token stop) override {
    if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "stopped"};
    LOCKSTEP_TRY(const auto client, Client());
    LOCKSTEP_TRY(const std::string token, Token());
    Exchange exchange(std::move(stop), request.timeout);
    auto task = client->request(BuildRequest(request, endpoint_.server_name, token), exchange.token())
                    .then([](http_response head) {
                      return head.extract_vector().then([head](std::vector<unsigned char> body) {
                        return Response{head.status_code(), LowerCaseHeaders(head),
                                        std::string(body.begin(), body.end())};
                      });
                    });
    return exchange.Wait(task).WithContext(request.method + " " + endpoint_.url + request.target);
  }

  Result<Response> Stream(const Request& request, const ChunkHandler& on_chunk,
                          std::stop_token stop) override {
    if (stop.stop_requested()) return Error{ErrorCode::kCancelled, "stopped"};
    LOCKSTEP_TRY(const auto client, Client());
    LOCKSTEP_TRY(const std::string token, Token());
    const std::string what = request.method + " " + endpoint_.url + request.target;
    Exchange exchange(std::move(stop), request.timeout);
    concurrency::streams::producer_consumer_buffer<uint8_t> buffer;
    http_request built = BuildRequest(request, endpoint_.server_name, token);
    built.set_response_stream(buffer.create_ostream());
    auto head_task = client->request(built, exchange.token());
    LOCKSTEP_TRY(const http_response head, exchange.Wait(head_task).WithContext(what));
    // The library leaves the buffer open at the end of the body; without this a read blocks without end.
    auto body_done = head.content_ready().then([buffer](pplx::task<http_response> done) {
      auto writer = buffer;
      return writer.close(std::ios_base::out).then([done] { return done; });
    });
    Response response{head.status_code(), LowerCaseHeaders(head), ""};
    const auto read = ReadChunks(buffer, exchange, [&](std::string_view chunk) {
      if (response.status < 300) return on_chunk(chunk);
      response.body += chunk;
      return true;
    });
    if (!read.ok()) return read.error().WithContext(what);
    if (*read == StreamEnd::kByHandler) return response;
    const auto end = exchange.Wait(body_done);
    if (!end.ok()) return end.error().WithContext(what);
    return response;
  }

 private:
  Result<std::shared_ptr<http_client>> Client() {
    const std::string stamp = StampOf(endpoint_.ca_file) + "|" + StampOf(endpoint_.certificate_file) + "|" +
                              StampOf(endpoint_.key_file);
    const MutexLock lock(mutex_);
    if (client_ != nullptr && stamp == client_stamp_) return client_;
    try {
      client_ = NewClient(endpoint_);
      client_stamp_ = stamp;
      return client_;
    } catch (const std::exception& exception) {
      return Error{ErrorCode::kInvalidArgument, endpoint_.url + ": " + exception.what()};
    }
  }

  Result<std::string> Token() {
    if (endpoint_.token_file.empty()) return endpoint_.token;
    const std::string stamp = StampOf(endpoint_.token_file);
    const MutexLock lock(mutex_);
    if (stamp != token_stamp_ || token_.empty()) {
      LOCKSTEP_TRY(token_, ReadFile(endpoint_.token_file));
      while (!token_.empty() && (token_.back() == '\n' || token_.back() == ' ')) token_.pop_back();
      token_stamp_ = stamp;
    }
    return token_;
  }

  const Endpoint endpoint_;
  Mutex mutex_;
  // Shared: a call in progress keeps the previous client during a rotation.
  std::shared_ptr<http_client> client_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string client_stamp_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string token_ LOCKSTEP_GUARDED_BY(mutex_);
  std::string token_stamp_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace

void InitializeHttpThreads(int threads) {
  crossplat::threadpool::initialize_with_threads(static_cast<std::size_t>(threads));
}

Result<std::unique_ptr<HttpTransport>> MakeTransport(const Endpoint& endpoint) {
  for (const std::string& path : {endpoint.ca_file, endpoint.certificate_file, endpoint.key_file}) {
    if (path.empty()) continue;
    if (const auto content = ReadFile(path); !content.ok()) return content.error();
  }
  if (!endpoint.url.starts_with("http://") && !endpoint.url.starts_with("https://")) {
    return Error{ErrorCode::kInvalidArgument, "\"" + endpoint.url + "\" is not an http:// or https:// URL"};
  }
  return std::unique_ptr<HttpTransport>(std::make_unique<CpprestTransport>(endpoint));
}

}  // namespace lockstep::http
