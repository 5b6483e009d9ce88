#pragma once
// The time limit of a collective, including the wait for the slowest rank. Pure.
//
// A peer that dies closes its connections, and the supervisor of a rank that hangs detects it
// (runtime/launch/supervisor/hang_detector.h) and ends the round. Both happen before this limit: a rank that
// is late, but within the bounds of spec.healthPolicy, breaks no round. The limit is for hangs that no
// supervisor detects.

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "runtime/common/protocol/worker_config.h"

namespace lockstep::train {

// `steps` is the maximum number of steps that a rank takes between two collectives.
[[nodiscard]] inline std::chrono::milliseconds CollectiveLimit(const protocol::HealthConfig& health,
                                                               int64_t steps) {
  using DoubleSeconds = std::chrono::duration<double>;
  // Covers the hang detector's pings, and its minimum bound of a few seconds.
  constexpr DoubleSeconds kMargin = std::chrono::minutes(1);
  // Longer durations do not fit into the clocks of c10d and Gloo.
  constexpr DoubleSeconds kMost = std::chrono::years(10);
  const double longest_step = std::max(health.first_step_timeout_seconds, health.step_timeout_seconds);
  // The learned bound is at most a multiple of the longest step that is allowed.
  const double longest_bound = longest_step * static_cast<double>(steps) * health.step_timeout_factor;
  // The supervisor gives a round up after twice the bound, for ranks that wait for peers.
  const DoubleSeconds limit = DoubleSeconds(2 * longest_bound) + kMargin;
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::min(limit, kMost));
}

}  // namespace lockstep::train
