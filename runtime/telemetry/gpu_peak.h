#pragma once
// The most that a GPU can compute, as its vendor says. Pure.

#include <optional>
#include <string_view>

namespace lockstep::telemetry {

// Floating point operations per second of its tensor units, of matrices that are not sparse. `name` as the
// driver tells it, `precision` as in spec.training, or "tf32". Absent for GPUs that the table lacks; for a
// slice of one (MIG); and for fp32, which is not theirs.
[[nodiscard]] std::optional<double> PeakFlops(std::string_view name, std::string_view precision);

}  // namespace lockstep::telemetry
