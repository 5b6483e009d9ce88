#pragma once
// The peak performance of a GPU according to its vendor. Pure.

#include <optional>
#include <string_view>

namespace lockstep::telemetry {

// Floating point operations per second of its tensor cores for dense matrices. `name` is the driver's name of
// the GPU; `precision` is as in spec.training, or "tf32". Absent for GPUs that are not in the table, for a
// slice of one (MIG), and for fp32, which tensor cores do not compute.
[[nodiscard]] std::optional<double> PeakFlops(std::string_view name, std::string_view precision);

}  // namespace lockstep::telemetry
