#pragma once
// /metrics, /healthz and /readyz on one server, from the process' first moment to its last.

#include <functional>
#include <memory>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/common/http/server.h"

namespace lockstep::telemetry {

struct HealthSources {
  std::function<http::Response()> metrics;
  // "" where ready; called on the server's thread, must not block.
  std::function<std::string()> why_not_ready;
};

[[nodiscard]] Result<std::unique_ptr<http::HttpServer>> StartHealthServer(const std::string& address,
                                                                          HealthSources sources);

}  // namespace lockstep::telemetry
