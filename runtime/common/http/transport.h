#pragma once
// Sends HTTP requests: the interface that all callers use, so that tests can script the answers and the
// library (cpprest_transport.h) is confined to one place. Implementations are safe to call from any thread.
// Each call blocks until the answer, the deadline or the stop.

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

// Called with each piece of the body as it arrives; if it returns false, the stream ends.
using ChunkHandler = std::function<bool(std::string_view chunk)>;

class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  // Any status is a value. An Error means that there was no answer (kUnavailable, kDeadlineExceeded,
  // kCancelled).
  [[nodiscard]] virtual Result<Response> Send(const Request& request, std::stop_token stop) = 0;
  // A status of 300 or more is returned with its body, and no chunk is delivered. A stream that ended
  // cleanly, or because the handler returned false, returns its status with an empty body. An interrupted or
  // silent stream is an Error.
  [[nodiscard]] virtual Result<Response> Stream(const Request& request, const ChunkHandler& on_chunk,
                                                std::stop_token stop) = 0;
};

// How to reach one server. Files are read again when they change, so that rotated tokens and certificates are
// used.
struct Endpoint {
  std::string url;               // "https://host:port", no path
  std::string ca_file;           // PEM; empty: the system's
  std::string certificate_file;  // client certificate and key, PEM; empty: none
  std::string key_file;
  std::string token_file;             // bearer token; empty: none
  std::string token;                  // a fixed bearer token, if there is no file
  std::string server_name;            // name that the server's certificate must have; empty: the URL's host
  std::string proxy_url;              // "http://host:port"; empty: from the environment
  bool use_proxy_environment = true;  // HTTPS_PROXY, HTTP_PROXY, NO_PROXY
};

}  // namespace lockstep::http
