#include "operator/telemetry/health.h"

#include <utility>

namespace lockstep::telemetry {

Result<std::unique_ptr<http::HttpServer>> StartHealthServer(const std::string& address,
                                                            HealthSources sources) {
  const auto handle = [sources = std::move(sources)](const http::ServerRequest& request,
                                                     const http::Responder& respond) {
    if (request.path == "/metrics") return respond(sources.metrics());
    if (request.path == "/healthz") return respond(http::TextResponse(200, "ok\n"));
    if (request.path != "/readyz") return respond(http::TextResponse(404, "no such path\n"));
    const std::string why = sources.why_not_ready();
    respond(why.empty() ? http::TextResponse(200, "ok\n") : http::TextResponse(503, why + "\n"));
  };
  return http::StartServer({.address = address}, handle).WithContext("metrics server");
}

}  // namespace lockstep::telemetry
