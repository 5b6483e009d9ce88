#pragma once
// RFC 3339 times in UTC in the format of Kubernetes, and durations in the format of its commands. Pure.

#include <chrono>
#include <string>
#include <string_view>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep {

[[nodiscard]] std::string FormatTime(WallTime time);       // 2026-01-02T03:04:05Z (metav1.Time)
[[nodiscard]] std::string FormatMicroTime(WallTime time);  // 2026-01-02T03:04:05.123456Z (metav1.MicroTime)
// Accepts fractional seconds of any length and the zones Z and +hh:mm.
[[nodiscard]] Result<WallTime> ParseTime(std::string_view text);

// "90s", "5m", "1h", "1h30m", or "90" for seconds. Above zero, at most a year.
[[nodiscard]] Result<std::chrono::seconds> ParseDuration(std::string_view text);

}  // namespace lockstep
