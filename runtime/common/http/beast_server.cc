// HttpServer over Boost.Beast. (cpprestsdk's listener cannot return the port that the system chose for port
// 0.)
//
// One thread accepts. Each connection is a Session.

#include <sys/socket.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/error.hpp>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/beast_session.h"
#include "runtime/common/http/server.h"

namespace lockstep::http {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using Tcp = asio::ip::tcp;

// Without free descriptors or memory an accept fails at once; until the next attempt the connection waits in
// the kernel.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

std::string PeerOf(const Tcp::socket& socket) {
  beast::error_code error;  // the peer may be gone already
  const asio::ip::address address = socket.remote_endpoint(error).address();
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string()
             : address.to_string();
}

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
  BeastServer(std::shared_ptr<SharedBySessions> shared, const HostPort& address, int threads)
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

  std::shared_ptr<SharedBySessions> shared_;
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
  auto shared = std::make_shared<SharedBySessions>(options);
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
