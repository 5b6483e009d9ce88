// HttpServer over Boost.Beast. (cpprestsdk's listener cannot return the port that the system chose for port
// 0.)
//
// One thread accepts. Each connection is a Session; the io_context's threads run all of them. While a handler
// holds a Responder, nothing is pending on the connection, so a long poll costs only memory.

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/open_files.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/channel.h"
#include "runtime/common/http/connection_ledger.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;
using BeastRequest = beast::http::request<beast::http::string_body>;

constexpr auto kIdleTimeout = std::chrono::seconds(120);
constexpr auto kIoTimeout = std::chrono::seconds(20);
// Without free descriptors or memory an accept fails at once; until the next attempt the connection waits in
// the kernel.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
constexpr std::size_t kChunkBytes = 16 << 10;  // on the stack; the size of a TLS record

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

std::string TextOf(const Response& response, bool keep_alive) {
  const auto status = static_cast<beast::http::status>(response.status);
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     std::string(beast::http::obsolete_reason(status)) + "\r\n";
  for (const auto& [name, value] : response.headers) text += name + ": " + value + "\r\n";
  if (!keep_alive) text += "Connection: close\r\n";
  text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  return text + response.body;
}

std::string PeerOf(const Tcp::socket& socket) {
  beast::error_code error;  // the peer may be gone already
  const asio::ip::address address = socket.remote_endpoint(error).address();
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string()
             : address.to_string();
}

class Session;

// The open sessions, so that the server can close them.
class Sessions {
 public:
  // False if the server is stopping.
  [[nodiscard]] bool Add(const std::shared_ptr<Session>& session) {
    const MutexLock lock(mutex_);
    if (!is_closed_) open_.insert(session);
    return !is_closed_;
  }
  void Remove(const std::shared_ptr<Session>& session) {
    const MutexLock lock(mutex_);
    open_.erase(session);
  }
  [[nodiscard]] std::set<std::shared_ptr<Session>> TakeAll() {
    const MutexLock lock(mutex_);
    is_closed_ = true;
    return std::move(open_);
  }

 private:
  Mutex mutex_;
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::set<std::shared_ptr<Session>> open_ LOCKSTEP_GUARDED_BY(mutex_);
};

// What every session needs of its server; outlives the server while a Responder exists.
struct Shared {
  explicit Shared(const ServerOptions& options)
      : certificate(options.certificate),
        max_body_bytes(options.max_body_bytes),
        limits(options.limits),
        ledger(options.limits, OpenFileLimit()) {}

  asio::io_context io;
  Handler handler;
  const ServerCertificate* const certificate;
  const std::size_t max_body_bytes;
  const ConnectionLimits limits;
  ConnectionLedger ledger;
  Sessions sessions;
};

// All private methods run on the strand of the socket, as a Step, unless they say otherwise.
class Session final : public std::enable_shared_from_this<Session> {
 public:
  // Without a context the session is plain.
  Session(std::shared_ptr<Shared> shared, std::string peer, Tcp::socket socket, ssl_ctx_st* context)
      : shared_(std::move(shared)),
        peer_(std::move(peer)),
        socket_(std::move(socket)),
        channel_(socket_.native_handle(), context),
        trust_deadline_(std::chrono::steady_clock::now() + shared_->limits.until_trusted) {}

  void Start(ConnectionLedger::Place place) {
    place_.emplace(std::move(place));
    Post([](Session& self) {
      self.shared_->sessions.Add(self.shared_from_this()) ? self.Begin() : self.End();
    });
  }

  // Any thread.
  void Close() {
    Post([](Session& self) { self.End(); });
  }

 private:
  // Sends 503 if every copy of the Responder is dropped unanswered.
  struct Pending {
    std::weak_ptr<Session> session;
    std::atomic<bool> answered{false};
    void Answer(Response response) {
      if (answered.exchange(true)) return;
      const auto alive = session.lock();
      if (alive == nullptr) return;
      alive->Post([response = std::move(response)](Session& self) { self.Write(response); });
    }
    ~Pending() { Answer(TextResponse(503, "the server is stopping\n")); }
  };

  // Calls `work` while the connection is open. If it throws, the connection is closed.
  template <typename Work>
  void Step(Work&& work) {
    if (!socket_.is_open()) return;  // the descriptor may belong to another connection by now
    const auto done = Guarded([&] { work(*this); });
    if (done.ok()) return;
    End();
    log::Error("connection failed", {{"error", done.error().message}});
  }

  // Any thread.
  template <typename Work>
  void Post(Work work) {
    asio::post(socket_.get_executor(),
               [self = shared_from_this(), work = std::move(work)] { self->Step(work); });
  }

  void Await(Channel::Wait wait, void (Session::*next)()) {
    const auto event = wait == Channel::Wait::kReadable ? Tcp::socket::wait_read : Tcp::socket::wait_write;
    socket_.async_wait(event, [self = shared_from_this(), next](beast::error_code error) {
      self->Step([&](Session& session) { error ? session.End() : (session.*next)(); });
    });
  }

  void EndAt(std::chrono::steady_clock::time_point when) {
    deadline_.expires_at(when);
    deadline_.async_wait([self = shared_from_this()](beast::error_code) {
      // The deadline may have moved since.
      if (self->deadline_.expiry() <= std::chrono::steady_clock::now()) self->End();
    });
  }
  void ClearDeadline() { deadline_.expires_at(std::chrono::steady_clock::time_point::max()); }

  // Waits for the next request.
  void Begin() {
    parser_.emplace();
    parser_->eager(true);
    parser_->body_limit(place_->is_trusted() ? shared_->max_body_bytes
                                             : shared_->limits.untrusted_body_bytes);
    EndAt(place_->is_trusted() ? std::chrono::steady_clock::now() + kIdleTimeout : trust_deadline_);
    Read();
  }

  void Read() {
    std::array<char, kChunkBytes> chunk;
    while (true) {
      beast::error_code error = beast::http::error::need_more;
      if (!unread_.empty()) unread_.erase(0, parser_->put(asio::buffer(unread_), error));
      if (error == beast::http::error::body_limit) return Refuse(TextResponse(413, "body too large\n"));
      if (error && error != beast::http::error::need_more) return End();
      if (parser_->is_done()) return Serve();
      const Channel::Progress got = channel_.Read(chunk);
      if (got.wait != Channel::Wait::kNothing) return Await(got.wait, &Session::Read);
      if (got.bytes == 0) return End();
      unread_.append(chunk.data(), got.bytes);
    }
  }

  void Serve() {
    ClearDeadline();
    keep_alive_ = parser_->get().keep_alive();
    ServerRequest request = FromBeast(parser_->get());
    request.peer = peer_;
    if (!place_->is_trusted()) {
      request.trust = [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->place_->Trust();
      };
    }
    // The buffers that a connection does not need while a handler keeps the Responder.
    parser_.reset();
    if (unread_.empty()) unread_ = std::string();
    auto pending = std::make_shared<Pending>();
    pending->session = weak_from_this();
    const std::string path = request.path;
    const auto handled = Guarded([&] {
      shared_->handler(std::move(request),
                       [pending](Response response) { pending->Answer(std::move(response)); });
    });
    if (handled.ok()) return;
    log::Error("request failed", {{"path", path}, {"error", handled.error().message}});
    pending->Answer(TextResponse(500, "internal error\n"));
  }

  // Does not read the rest of the request.
  void Refuse(const Response& response) {
    keep_alive_ = false;
    Write(response);
  }

  void Write(const Response& response) {
    if (response.status < 400) place_->Trust();
    // Over this connection the client would reach the same server again.
    if (response.status == static_cast<int>(beast::http::status::misdirected_request)) keep_alive_ = false;
    answer_ = TextOf(response, keep_alive_);
    written_ = 0;
    EndAt(std::chrono::steady_clock::now() + kIoTimeout);
    Send();
  }

  void Send() {
    while (written_ < answer_.size()) {
      const Channel::Progress sent = channel_.Write(std::string_view(answer_).substr(written_));
      if (sent.wait != Channel::Wait::kNothing) return Await(sent.wait, &Session::Send);
      if (sent.bytes == 0) return End();
      written_ += sent.bytes;
    }
    answer_ = std::string();
    keep_alive_ ? Begin() : End();
  }

  void End() {
    beast::error_code ignored;  // the peer may have closed first, and needs no answer then
    (void)socket_.shutdown(Tcp::socket::shutdown_both, ignored);
    (void)socket_.close(ignored);
    deadline_.cancel();
    shared_->sessions.Remove(shared_from_this());
  }

  std::shared_ptr<Shared> shared_;
  std::optional<ConnectionLedger::Place> place_;  // in the ledger of shared_
  const std::string peer_;
  Tcp::socket socket_;
  Channel channel_;
  asio::steady_timer deadline_{socket_.get_executor()};
  const std::chrono::steady_clock::time_point trust_deadline_;
  std::string unread_;  // received but not parsed yet
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  std::string answer_;
  std::size_t written_ = 0;  // bytes of it
  bool keep_alive_ = false;
};

// Without a host: all addresses of this machine, of both families if the kernel has IPv6.
Tcp::acceptor Listen(asio::io_context& io, const HostPort& address) {
  const auto port = static_cast<unsigned short>(address.port);
  Tcp::acceptor acceptor(io);
  Tcp::endpoint endpoint(Tcp::v6(), port);
  if (!address.host.empty()) endpoint = {asio::ip::make_address(address.host), port};
  beast::error_code error;
  (void)acceptor.open(endpoint.protocol(), error);
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

class BeastServer final : public HttpServer {
 public:
  BeastServer(std::shared_ptr<Shared> shared, const HostPort& address, int threads)
      : shared_(std::move(shared)),
        acceptor_(Listen(listening_, address)),
        port_(acceptor_.local_endpoint().port()) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
    acceptor_thread_ = std::jthread([this](const std::stop_token& stop) { Accept(stop); });
  }

  ~BeastServer() override {
    acceptor_thread_.request_stop();
    ::shutdown(acceptor_.native_handle(), SHUT_RDWR);  // makes accept fail
    acceptor_thread_.join();
    for (const auto& session : shared_->sessions.TakeAll()) session->Close();
    work_.reset();
    threads_.clear();  // joins: with all sessions closed the context has no more work
  }

  [[nodiscard]] int port() const override { return port_; }

 private:
  void Run() {
    while (true) {
      const auto ran = Guarded([this] { shared_->io.run(); });
      if (ran.ok()) return;
      log::Error("connection failed", {{"error", ran.error().message}});
    }
  }

  // Without free descriptors or memory a connection waits in the kernel or is dropped; later ones are served
  // once there are some.
  void Accept(const std::stop_token& stop) {
    bool fails = false;  // a failure has been logged
    while (!stop.stop_requested()) {
      const Result<void> accepted = AcceptOne();
      if (!accepted.ok() && !stop.stop_requested()) {
        if (!std::exchange(fails, true))
          log::Warning("cannot accept connections; retrying", {{"error", accepted.error().message}});
        PauseFor(kAcceptPause, stop);
      }
      fails = fails && !accepted.ok();
    }
  }

  Result<void> AcceptOne() {
    beast::error_code error;
    LOCKSTEP_TRY(Guarded([&] {
      Tcp::socket socket = acceptor_.accept(asio::make_strand(shared_->io), error);
      if (!error) Open(std::move(socket));
    }));
    return error ? Error{ErrorCode::kUnavailable, error.message()} : Result<void>();
  }

  void Open(Tcp::socket socket) {
    beast::error_code ignored;  // a missing option only costs latency
    (void)socket.set_option(Tcp::no_delay(true), ignored);
    const std::string peer = PeerOf(socket);
    std::shared_ptr<ssl_ctx_st> context;
    if (shared_->certificate != nullptr) {
      context = shared_->certificate->context();
      if (context == nullptr) return;  // closes the connection
    }
    const auto session = std::make_shared<Session>(shared_, peer, std::move(socket), context.get());
    auto place = shared_->ledger.Admit(peer, [weak = std::weak_ptr(session)] {
      if (const auto displaced = weak.lock()) displaced->Close();
    });
    if (place.has_value()) session->Start(std::move(place));  // else its destructor closes it
  }

  std::shared_ptr<Shared> shared_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{shared_->io.get_executor()};
  asio::io_context listening_;  // never run; the acceptor needs one
  Tcp::acceptor acceptor_;
  const int port_;
  std::vector<std::jthread> threads_;
  std::jthread acceptor_thread_;
};

}  // namespace

Result<void> ServerCertificate::Use(const std::string& chain_pem, const std::string& key_pem) {
  LOCKSTEP_TRY(TlsContext context, MakeTlsContext(chain_pem, key_pem));
  const MutexLock lock(mutex_);
  context_ = std::move(context);
  return {};
}

std::shared_ptr<ssl_ctx_st> ServerCertificate::context() const {
  const MutexLock lock(mutex_);
  return context_;
}

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
  LOCKSTEP_TRY(const HostPort address, SplitHostPort(options.address));
  beast::error_code no_address;
  if (!address.host.empty()) asio::ip::make_address(address.host, no_address);
  if (no_address)
    return Error{ErrorCode::kInvalidArgument,
                 "\"" + options.address + "\": \"" + address.host + "\" is no IP address"};
  try {
    return std::unique_ptr<HttpServer>(std::make_unique<BeastServer>(shared, address, options.threads));
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kUnavailable, "listening on " + options.address + ": " + exception.what()};
  }
}

}  // namespace lockstep::http
