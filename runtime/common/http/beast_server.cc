// HttpServer over Boost.Beast. (cpprestsdk's listener cannot tell which port the system chose for port 0.)
//
// Each connection is a Session; the io_context's threads run all of them. While a handler holds a Responder
// nothing is pending on the connection, so a long poll costs memory only.

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/connection_ledger.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using BeastRequest = beast::http::request<beast::http::string_body>;
using BeastResponse = beast::http::response<beast::http::string_body>;

constexpr auto kIdleTimeout = std::chrono::seconds(120);
constexpr auto kIoTimeout = std::chrono::seconds(20);
// Without open files or memory left, an accept fails at once; the connection waits in the kernel meanwhile.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

ServerRequest FromBeast(const BeastRequest& request) {
  ServerRequest out;
  out.method = std::string(request.method_string());
  const std::string target(request.target());
  const std::size_t question = target.find('?');
  out.path = target.substr(0, question);
  if (question != std::string::npos) out.query = target.substr(question + 1);
  for (const auto& field : request) {
    std::string name(field.name_string());
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    out.headers[name] = std::string(field.value());
  }
  out.body = request.body();
  return out;
}

std::string PeerOf(const Tcp::socket& socket) {
  beast::error_code error;  // the peer may be gone already
  const asio::ip::address address = socket.remote_endpoint(error).address();
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string()
             : address.to_string();
}

class SessionBase {
 public:
  virtual ~SessionBase() = default;
  virtual void Close() = 0;
};

// The sessions that are open, so that the server can close them.
class Sessions {
 public:
  void Add(const std::shared_ptr<SessionBase>& session) {
    const MutexLock lock(mutex_);
    open_.insert(session);
  }
  void Remove(const std::shared_ptr<SessionBase>& session) {
    const MutexLock lock(mutex_);
    open_.erase(session);
  }
  std::set<std::shared_ptr<SessionBase>> TakeAll() {
    const MutexLock lock(mutex_);
    return std::move(open_);
  }

 private:
  Mutex mutex_;
  std::set<std::shared_ptr<SessionBase>> open_ LOCKSTEP_GUARDED_BY(mutex_);
};

// What every session needs of its server; outlives the server while a Responder is still held somewhere.
struct Shared {
  explicit Shared(const ServerOptions& options)
      : max_body_bytes(options.max_body_bytes),
        limits(options.limits),
        ledger(options.limits, OpenFileLimit()) {}

  asio::io_context io;
  std::optional<asio::ssl::context> tls;
  Handler handler;
  const std::size_t max_body_bytes;
  const ConnectionLimits limits;
  ConnectionLedger ledger;
  Sessions sessions;
};

template <typename Stream>
class Session final : public SessionBase, public std::enable_shared_from_this<Session<Stream>> {
 public:
  Session(std::shared_ptr<Shared> shared, ConnectionLedger::Place place, std::string peer, Stream stream)
      : shared_(std::move(shared)),
        place_(std::move(place)),
        peer_(std::move(peer)),
        stream_(std::move(stream)),
        trust_deadline_(std::chrono::steady_clock::now() + shared_->limits.until_trusted) {}

  void Start() {
    shared_->sessions.Add(this->shared_from_this());
    if constexpr (kTls) {
      beast::get_lowest_layer(stream_).expires_at(trust_deadline_);
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](auto error) {
        error ? self->End() : self->Read();
      });
    } else {
      Read();
    }
  }

  void Close() override {
    asio::post(stream_.get_executor(), [self = this->shared_from_this()] { self->End(); });
  }

 private:
  static constexpr bool kTls = !std::is_same_v<Stream, beast::tcp_stream>;

  // Sends 503 if every copy of the Responder is dropped unanswered.
  struct Pending {
    std::weak_ptr<Session> session;
    std::atomic<bool> answered{false};
    void Answer(Response response) {
      if (answered.exchange(true)) return;
      if (auto alive = session.lock()) alive->PostWrite(std::move(response));
    }
    ~Pending() { Answer(TextResponse(503, "the server is stopping\n")); }
  };

  void Read() {
    parser_.emplace();
    parser_->body_limit(place_.is_trusted() ? shared_->max_body_bytes : shared_->limits.untrusted_body_bytes);
    beast::get_lowest_layer(stream_).expires_at(
        place_.is_trusted() ? std::chrono::steady_clock::now() + kIdleTimeout : trust_deadline_);
    beast::http::async_read(stream_, buffer_, *parser_,
                            [self = this->shared_from_this()](auto error, std::size_t) {
                              if (error == beast::http::error::body_limit)
                                return self->Write(TextResponse(413, "body too large\n"));
                              error ? self->End() : self->Serve();
                            });
  }

  void Serve() {
    beast::get_lowest_layer(stream_).expires_never();
    keep_alive_ = parser_->get().keep_alive();
    auto pending = std::make_shared<Pending>();
    pending->session = this->weak_from_this();
    const auto handled = Guarded([&] {
      ServerRequest request = FromBeast(parser_->get());
      request.peer = peer_;
      shared_->handler(std::move(request),
                       [pending](Response response) { pending->Answer(std::move(response)); });
    });
    if (handled.ok()) return;
    log::Error("request failed",
               {{"path", std::string(parser_->get().target())}, {"error", handled.error().message}});
    pending->Answer(TextResponse(500, "internal error\n"));
  }

  void PostWrite(Response response) {
    asio::post(stream_.get_executor(),
               [self = this->shared_from_this(), response = std::move(response)]() mutable {
                 self->Write(std::move(response));
               });
  }

  void Write(Response response) {
    if (response.status < 400) place_.Trust();
    // Over this connection the client would come to the same server again.
    if (response.status == static_cast<int>(beast::http::status::misdirected_request)) keep_alive_ = false;
    response_.emplace(static_cast<beast::http::status>(response.status), 11);
    for (const auto& [name, value] : response.headers) response_->set(name, value);
    response_->keep_alive(keep_alive_);
    response_->body() = std::move(response.body);
    response_->prepare_payload();
    beast::get_lowest_layer(stream_).expires_after(kIoTimeout);
    beast::http::async_write(stream_, *response_, [self = this->shared_from_this()](auto error, std::size_t) {
      error || !self->keep_alive_ ? self->End() : self->Read();
    });
  }

  void End() {
    beast::error_code ignored;  // the peer may have closed first; there is nobody left to tell
    beast::get_lowest_layer(stream_).socket().shutdown(Tcp::socket::shutdown_both, ignored);
    beast::get_lowest_layer(stream_).close();
    shared_->sessions.Remove(this->shared_from_this());
  }

  std::shared_ptr<Shared> shared_;
  ConnectionLedger::Place place_;  // in the ledger of shared_
  const std::string peer_;
  Stream stream_;
  const std::chrono::steady_clock::time_point trust_deadline_;
  beast::flat_buffer buffer_;
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  std::optional<BeastResponse> response_;
  bool keep_alive_ = false;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(std::shared_ptr<Shared> shared, Tcp::acceptor acceptor, int threads)
      : shared_(std::move(shared)), acceptor_(std::move(acceptor)), port_(acceptor_.local_endpoint().port()) {
    Accept();
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  ~BeastServer() override {
    asio::post(acceptor_.get_executor(), [this] {
      stopping_ = true;
      acceptor_.close();
      accept_pause_.cancel();
      for (const auto& session : shared_->sessions.TakeAll()) session->Close();
    });
    threads_.clear();  // joins: with the acceptor and the sessions closed the context runs out of work
  }

  [[nodiscard]] int port() const override { return port_; }

 private:
  // A connection whose own code throws is given up; the thread serves the others.
  void Run() {
    while (true) {
      const auto ran = Guarded([this] { shared_->io.run(); });
      if (ran.ok()) return;
      log::Error("connection failed", {{"error", ran.error().message}});
    }
  }

  void Accept() {
    acceptor_.async_accept(asio::make_strand(shared_->io),
                           [this](beast::error_code error, Tcp::socket socket) {
                             if (stopping_ || error == asio::error::operation_aborted) return;
                             if (error) return AcceptLater(error);
                             accept_fails_ = false;
                             Open(std::move(socket));
                             Accept();
                           });
  }

  void AcceptLater(const beast::error_code& error) {
    if (!std::exchange(accept_fails_, true))
      log::Warning("connections cannot be accepted; trying until it works", {{"error", error.message()}});
    accept_pause_.expires_after(kAcceptPause);
    accept_pause_.async_wait([this](beast::error_code) {
      if (!stopping_) Accept();
    });
  }

  void Open(Tcp::socket socket) {
    const std::string peer = PeerOf(socket);
    ConnectionLedger::Place place = shared_->ledger.Admit(peer);
    if (!place.has_value()) return;  // which closes it
    beast::error_code ignored;       // a missing option only costs latency
    socket.set_option(Tcp::no_delay(true), ignored);
    if (shared_->tls.has_value()) {
      using Stream = beast::ssl_stream<beast::tcp_stream>;
      std::make_shared<Session<Stream>>(shared_, std::move(place), peer,
                                        Stream(std::move(socket), *shared_->tls))
          ->Start();
    } else {
      std::make_shared<Session<beast::tcp_stream>>(shared_, std::move(place), peer,
                                                   beast::tcp_stream(std::move(socket)))
          ->Start();
    }
  }

  std::shared_ptr<Shared> shared_;
  Tcp::acceptor acceptor_;
  const int port_;
  // Touched on the acceptor's strand only.
  asio::steady_timer accept_pause_{acceptor_.get_executor()};
  bool accept_fails_ = false;  // and the log says so
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

Result<void> LoadCertificate(const ServerOptions& options, std::optional<asio::ssl::context>& tls) {
  if (options.certificate_pem.empty() && options.key_pem.empty()) return {};
  try {
    tls.emplace(asio::ssl::context::tls_server);
    tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                     asio::ssl::context::no_tlsv1_1);
    tls->use_certificate_chain(asio::buffer(options.certificate_pem));
    tls->use_private_key(asio::buffer(options.key_pem), asio::ssl::context::pem);
    return {};
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kInvalidArgument, std::string("server certificate: ") + exception.what()};
  }
}

// Without a host: all addresses of this machine, of both families where the kernel has IPv6.
Tcp::acceptor Listen(asio::io_context& io, const HostPort& address) {
  const auto port = static_cast<unsigned short>(address.port);
  // The acceptor's own strand also guards `stopping_`.
  Tcp::acceptor acceptor(asio::make_strand(io));
  Tcp::endpoint endpoint(Tcp::v6(), port);
  if (!address.host.empty()) endpoint = {asio::ip::make_address(address.host), port};
  beast::error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (error == asio::error::address_family_not_supported && address.host.empty()) {
    endpoint = {Tcp::v4(), port};
    acceptor.open(endpoint.protocol());
  } else if (error) {
    throw beast::system_error(error);
  }
  if (endpoint.address() == asio::ip::address_v6::any()) acceptor.set_option(asio::ip::v6_only(false));
  acceptor.set_option(Tcp::acceptor::reuse_address(true));
  acceptor.bind(endpoint);
  acceptor.listen();
  return acceptor;
}

}  // namespace

std::string BearerTokenOf(const ServerRequest& request) {
  static constexpr std::string_view kPrefix = "Bearer ";
  const auto found = request.headers.find("authorization");
  if (found == request.headers.end() || !found->second.starts_with(kPrefix)) return "";
  return found->second.substr(kPrefix.size());
}

Response JsonResponse(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

Response TextResponse(int status, std::string body) {
  return {status, {{"Content-Type", "text/plain; charset=utf-8"}}, std::move(body)};
}

Result<std::unique_ptr<HttpServer>> StartServer(const ServerOptions& options, Handler handler) {
  auto shared = std::make_shared<Shared>(options);
  shared->handler = std::move(handler);
  LOCKSTEP_TRY(LoadCertificate(options, shared->tls));
  LOCKSTEP_TRY(const HostPort address, SplitHostPort(options.address));
  beast::error_code no_address;
  if (!address.host.empty()) asio::ip::make_address(address.host, no_address);
  if (no_address)
    return Error{ErrorCode::kInvalidArgument,
                 "\"" + options.address + "\": \"" + address.host + "\" is no IP address"};
  try {
    return std::unique_ptr<HttpServer>(
        std::make_unique<BeastServer>(shared, Listen(shared->io, address), options.threads));
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kUnavailable, "listening on " + options.address + ": " + exception.what()};
  }
}

}  // namespace lockstep::http
