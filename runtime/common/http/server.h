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

struct ssl_ctx_st;  // of OpenSSL

namespace lockstep::http {

struct ServerRequest {
  std::string method;
  std::string path;  // without the query
  std::string query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  std::string peer;  // the address that it came from, without the port
  // The sender is authorised: its connection is trusted before the answer. Any thread.
  std::function<void()> trust = [] {};
};

// Answers one request, once; a second call is ignored. Dropping it unanswered sends 503. Copyable, any
// thread.
using Responder = std::function<void(Response response)>;
using Handler = std::function<void(ServerRequest request, Responder respond)>;

// How many connections a server takes. A connection is trusted once the handler says so of one of its requests, or
// answers one with success (a status below 400). The defaults are those of a rendezvous of 10,000 members.
struct ConnectionLimits {
  // Two for each member, its long poll and its reports, and a fifth more for those that replace others. Never
  // more than the limit of open files leaves. Those that are not trusted have what the trusted ones leave: a new
  // connection takes the place of the oldest of them.
  std::size_t all = 24'000;
  // From one address: half, so that none takes the place of all others. 5,000 members may share an address
  // behind NAT; in a cluster it is one pod's, or one node's with host networking.
  std::size_t per_peer = 12'000;
  // From one address and not trusted: what anybody may cause. More of one address than this may not connect
  // in the same moment; those that are refused try again.
  std::size_t untrusted_per_peer = 1'000;
  // A connection ends where it is not trusted so long after it was accepted and no request is being answered.
  std::chrono::milliseconds until_trusted{10'000};
  // Of a request before the connection is trusted. Joins and heartbeats take less.
  std::size_t untrusted_body_bytes = 64 << 10;
};

// What servers present over TLS, and may be replaced at any time: connections that are open keep the one that they
// began with. Before the first Use connections are closed. Any thread.
class ServerCertificate {
 public:
  // Chain and key, PEM text. Fails where they do not parse or do not belong together; what was used before stays.
  [[nodiscard]] Result<void> Use(const std::string& chain_pem, const std::string& key_pem);

  [[nodiscard]] std::shared_ptr<ssl_ctx_st> context() const;

 private:
  mutable Mutex mutex_;
  // Shared: a connection that is being accepted may outlive the replacement.
  std::shared_ptr<ssl_ctx_st> context_ LOCKSTEP_GUARDED_BY(mutex_);
};

struct ServerOptions {
  // host:port, IPv6 addresses in brackets; without a host all addresses, IPv4 and IPv6. Port 0 lets the system
  // choose.
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

// Routes every request to `handler`; an exception of it is logged and answered 500. Fails where the address
// cannot be bound.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> StartServer(const ServerOptions& options, Handler handler);

// Of "Authorization: Bearer …"; empty where there is none.
[[nodiscard]] std::string BearerTokenOf(const ServerRequest& request);

[[nodiscard]] Response JsonResponse(int status, std::string body);
[[nodiscard]] Response TextResponse(int status, std::string body);

}  // namespace lockstep::http
