#pragma once
// Sending HTTP requests: the interface everything above uses, so that tests script the answers and the
// library underneath (cpprest_transport.h) can be replaced in one place. Implementations are safe to call
// from any thread; each call blocks its caller until the answer, the deadline, or the stop.

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::http {

struct Request {
  std::string method = "GET";
  std::string target;                          // path and query, already percent-encoded: "/v1/join?x=1"
  std::map<std::string, std::string> headers;  // names in any case
  std::string body;
  std::chrono::milliseconds timeout{30'000};  // Send: whole exchange. Stream: longest silence.
};

struct Response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

// Called with each piece of the body as it arrives; false ends the stream.
using ChunkHandler = std::function<bool(std::string_view chunk)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // Any status is a value; an Error means that no answer came (kUnavailable, kDeadlineExceeded, kCancelled).
  [[nodiscard]] virtual Result<Response> Send(const Request& request, std::stop_token stop) = 0;
  // A status of 300 or more comes back with its body collected and no chunk delivered. A stream that ended
  // cleanly or by the handler's wish returns its status with an empty body; a cut or silent one is an Error.
  [[nodiscard]] virtual Result<Response> Stream(const Request& request, const ChunkHandler& on_chunk,
                                                std::stop_token stop) = 0;
};

// How to reach one server. Files are re-read when they change, so rotated tokens and certificates are picked
// up.
struct Endpoint {
  std::string url;               // "https://host:port", no path
  std::string ca_file;           // PEM; empty: the system's
  std::string certificate_file;  // client certificate and key, PEM; empty: none
  std::string key_file;
  std::string token_file;             // bearer token; empty: none
  std::string token;                  // a fixed bearer token where there is no file
  std::string server_name;            // whose certificate the server must show; empty: the URL's host
  std::string proxy_url;              // "http://host:port"; empty: as the environment says
  bool use_proxy_environment = true;  // HTTPS_PROXY, HTTP_PROXY, NO_PROXY
};

}  // namespace lockstep::http
