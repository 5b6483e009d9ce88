#pragma once
// Serves /healthz and /readyz, and /metrics: on the same server without authorisation, or on a separate TLS
// server that checks tokens. Lives from the start of the process to its end.

#include <functional>
#include <memory>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/http/server.h"

namespace lockstep::telemetry {

struct HealthSources {
  std::function<http::Response()> metrics;  // not set: metrics have a server of their own
  // "" if ready. Called on the server's thread; must not block.
  std::function<std::string()> why_not_ready;
};

[[nodiscard]] Result<std::unique_ptr<http::HttpServer>> StartHealthServer(const std::string& address,
                                                                          HealthSources sources);

struct SecureMetrics {
  std::string address;
  const http::ServerCertificate& certificate;  // outlives the server
  std::function<http::Response()> metrics;
  // Whether the bearer of this token, from this address, may read the metrics. Must not block; `done` may be
  // called later, from any thread.
  std::function<void(const std::string& token, const std::string& peer,
                     std::function<void(Result<void>)> done)>
      authorize;
};

[[nodiscard]] Result<std::unique_ptr<http::HttpServer>> StartSecureMetricsServer(SecureMetrics options);

}  // namespace lockstep::telemetry
