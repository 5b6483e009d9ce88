#pragma once
// Serving HTTP(S): routes, deferred answers (long polls), port 0. Handlers run on the server's own threads
// and must not block; they may keep the Responder and answer later from any thread.

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/common/base/mutex.h"
#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

struct ssl_ctx_st;  // OpenSSL

namespace lockstep::http {

struct ServerRequest {
  std::string method;
  std::string path;  // without the query
  std::string query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string peer;  // the client's address, without the port
  // Marks the connection as trusted before the answer, because the sender is authorised. Any thread.
  std::function<void()> trust = [] {};
};

// Answers one request; a second call is ignored. If all copies are destroyed without an answer, 503 is sent.
// Copyable, any thread.
using Responder = std::function<void(Response response)>;
using Handler = std::function<void(ServerRequest request, Responder respond)>;

// Limits the connections of a server. A connection is trusted once the handler says so for one of its
// requests, or answers one with success (a status below 400). The defaults are for a rendezvous of 10,000
// members.
struct ConnectionLimits {
  // Two for each member (its long poll and its reports), and a fifth more for replacements. Never more than
  // the limit of open files permits. Untrusted connections use what trusted ones leave: a new connection
  // replaces the oldest of them.
  std::size_t all = 24'000;
  // From one address: half of all, so that no address occupies everything. 5,000 members may share an address
  // behind NAT; in a cluster an address belongs to one pod, or to one node with host networking.
  std::size_t per_peer = 12'000;
  // Untrusted connections from one address. More members at one address than this cannot connect at the same
  // time; rejected ones try again.
  std::size_t untrusted_per_peer = 1'000;
  // A connection is closed if it is untrusted for this long after it was accepted and no request is being
  // answered.
  std::chrono::milliseconds until_trusted{10'000};
  // Body size of a request on an untrusted connection. Joins and heartbeats are smaller.
  std::size_t untrusted_body_bytes = 64 << 10;
};

// The TLS certificate of servers, which may be replaced at any time; open connections keep the one they
// started with. Before the first Use connections are closed. Any thread.
class ServerCertificate {
 public:
  // Chain and key, PEM. Fails if they do not parse or do not match; the previous certificate is then kept.
  [[nodiscard]] Result<void> Use(const std::string& chain_pem, const std::string& key_pem);

  [[nodiscard]] std::shared_ptr<ssl_ctx_st> context() const;

 private:
  mutable Mutex mutex_;
  // Shared: a connection that is being accepted may outlive a replacement.
  std::shared_ptr<ssl_ctx_st> context_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct ServerOptions {
  // host:port, IPv6 addresses in brackets; without a host all addresses, IPv4 and IPv6. With port 0 the
  // system chooses.
  std::string address = "127.0.0.1:0";
  const ServerCertificate* certificate = nullptr;  // outlives the server; null: plain HTTP
  std::size_t max_body_bytes = 1 << 20;
  int threads = 1;
  ConnectionLimits limits;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops accepting, closes connections, joins its threads
  [[nodiscard]] virtual int port() const = 0;
};

// Passes every request to `handler`; its exceptions are logged and answered with 500. Fails if the address
// cannot be bound.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> StartServer(const ServerOptions& options, Handler handler);

// From "Authorization: Bearer …"; empty if there is none.
[[nodiscard]] std::string BearerTokenOf(const ServerRequest& request);

[[nodiscard]] Response JsonResponse(int status, std::string body);
[[nodiscard]] Response TextResponse(int status, std::string body);

}  // namespace lockstep::http
