#include "operator/telemetry/health.h"

#include <utility>

namespace lockstep::telemetry {
namespace {

// For the kubelet and a few scrapers of metrics. There is no authorisation, so only these limits bound the
// load.
constexpr http::ConnectionLimits kLimits{.all = 2'048, .per_peer = 64, .untrusted_per_peer = 64};

http::Response Refusal(const Error& why) {
  switch (why.code) {
    case ErrorCode::kUnauthorized: {
      http::Response response = http::TextResponse(401, why.message + "\n");
      response.headers["WWW-Authenticate"] = "Bearer";
      return response;
    }
    case ErrorCode::kForbidden: return http::TextResponse(403, why.message + "\n");
    case ErrorCode::kThrottled: return http::TextResponse(429, why.message + "\n");
    default: return http::TextResponse(503, why.message + "\n");
  }
}

}  // namespace

Result<std::unique_ptr<http::HttpServer>> StartHealthServer(const std::string& address,
                                                            HealthSources sources) {
  const auto handle = [sources = std::move(sources)](const http::ServerRequest& request,
                                                     const http::Responder& respond) {
    if (request.path == "/metrics" && sources.metrics) return respond(sources.metrics());
    if (request.path == "/healthz") return respond(http::TextResponse(200, "ok\n"));
    if (request.path != "/readyz") return respond(http::TextResponse(404, "no such path\n"));
    const std::string why = sources.why_not_ready();
    respond(why.empty() ? http::TextResponse(200, "ok\n") : http::TextResponse(503, why + "\n"));
  };
  return http::StartServer({.address = address, .limits = kLimits}, handle).WithContext("metrics server");
}

Result<std::unique_ptr<http::HttpServer>> StartSecureMetricsServer(SecureMetrics options) {
  const http::ServerOptions server{
      .address = options.address, .certificate = &options.certificate, .limits = kLimits};
  const auto handle = [options = std::move(options)](const http::ServerRequest& request,
                                                     const http::Responder& respond) {
    if (request.path != "/metrics") return respond(http::TextResponse(404, "no such path\n"));
    options.authorize(http::BearerTokenOf(request), request.peer,
                      [metrics = options.metrics, respond](const Result<void>& allowed) {
                        respond(allowed.ok() ? metrics() : Refusal(allowed.error()));
                      });
  };
  return http::StartServer(server, handle).WithContext("secure metrics server");
}

}  // namespace lockstep::telemetry
