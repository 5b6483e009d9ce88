#include "operator/telemetry/health.h"

#include <utility>

namespace lockstep::telemetry {
namespace {

// The kubelet, and a few scrapers of metrics. Everybody may ask, so these limits are all that bounds them.
constexpr http::ConnectionLimits kLimits{.all = 2'048, .per_peer = 64, .untrusted_per_peer = 64};

}  // namespace

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
  return http::StartServer({.address = address, .limits = kLimits}, handle).WithContext("metrics server");
}

}  // namespace lockstep::telemetry
