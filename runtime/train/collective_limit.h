#pragma once
// How long a collective may take, the wait for the slowest rank included. Pure.
//
// A peer that dies closes its connections, and a rank that hangs is found by its supervisor
// (runtime/launch/hang_detector.h), which ends the round. Both come first: a rank that is only late, within
// the bounds of spec.healthPolicy, breaks no round. This limit is for a hang that nobody found.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runtime/common/protocol/worker_config.h"

namespace lockstep::train {

// `steps`: most that a rank takes between two collectives.
[[nodiscard]] inline std::chrono::milliseconds CollectiveLimit(const protocol::HealthConfig& health,
                                                               int64_t steps) {
  using DoubleSeconds = std::chrono::duration<double>;
  // The questions of the hang detector, and bounds of a few seconds, which it extends.
  constexpr DoubleSeconds kMargin = std::chrono::minutes(1);
  // More does not fit into the clocks of c10d and Gloo.
  constexpr DoubleSeconds kMost = std::chrono::years(10);
  const double longest_step = std::max(health.first_step_timeout_seconds, health.step_timeout_seconds);
  // Learned from what lasts as long as is allowed.
  const double longest_bound = longest_step * static_cast<double>(steps) * health.step_timeout_factor;
  // A round is given up for those that wait once twice the bound has passed.
  const DoubleSeconds limit = DoubleSeconds(2 * longest_bound) + kMargin;
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::min(limit, kMost));
}

}  // namespace lockstep::train
