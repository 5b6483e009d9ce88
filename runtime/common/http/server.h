#pragma once
// Serving HTTP(S): routes, deferred answers (long polls), port 0. Handlers run on the server's own threads
// and must not block; they may keep the Responder and answer later from any thread.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/http/transport.h"

namespace lockstep::http {

struct ServerRequest {
  std::string method;
  std::string path;  // without the query
  std::string query;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// Answers one request, once; a second call is ignored. Dropping it unanswered sends 503. Copyable, any
// thread.
using Responder = std::function<void(Response response)>;
using Handler = std::function<void(ServerRequest request, Responder respond)>;

struct ServerOptions {
  std::string address = "127.0.0.1:0";  // host:port; port 0 lets the system choose
  std::string certificate_pem;          // chain and key, PEM text; both empty: plain HTTP
  std::string key_pem;
  std::size_t max_body_bytes = 1 << 20;
  int threads = 1;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;  // stops accepting, closes connections, joins its threads
  [[nodiscard]] virtual int port() const = 0;
};

// Routes every request to `handler`; an exception of it is logged and answered 500. Fails where the address cannot be bound or the certificate does not
// parse.
[[nodiscard]] Result<std::unique_ptr<HttpServer>> StartServer(const ServerOptions& options, Handler handler);

[[nodiscard]] Response JsonResponse(int status, std::string body);
[[nodiscard]] Response TextResponse(int status, std::string body);

}  // namespace lockstep::http
