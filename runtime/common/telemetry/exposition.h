#pragma once
// The content of a Prometheus registry in the text format, for any HTTP server. Any thread.

#include <memory>
#include <string>

#include "runtime/common/http/server.h"

namespace prometheus {
class Registry;
}

namespace lockstep::telemetry {

// Adds lockstep_build_info{version,program} = 1.
void AddBuildInfo(prometheus::Registry& registry, const std::string& program);

// A 200 answer with the registry's current content and
// process_{resident_memory_bytes,cpu_seconds_total,open_fds}, read at the time of the call.
[[nodiscard]] http::Response MetricsResponse(const prometheus::Registry& registry);

}  // namespace lockstep::telemetry
