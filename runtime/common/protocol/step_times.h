#pragma once
// A histogram of step durations that a rank reports and its supervisor exports. Any thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/common/protocol/message_limits.h"

namespace lockstep::protocol {

// Upper bounds in seconds; one more count is for longer steps.
inline constexpr std::array<double, 16> kStepTimeBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                        0.5,   1,      2.5,   5,    10,    25,   60,  150};

struct StepTimes {
  std::vector<int64_t> counts = std::vector<int64_t>(kStepTimeBounds.size() + 1, 0);
  double seconds = 0;

  // `steps` that took `seconds` together.
  void Add(int64_t steps, double seconds_of_all) {
    if (steps <= 0) return;
    const double each = seconds_of_all / static_cast<double>(steps);
    std::size_t place = 0;
    while (place < kStepTimeBounds.size() && each > kStepTimeBounds.at(place)) ++place;
    counts.at(place) += steps;
    seconds += seconds_of_all;
  }
};

template <typename A>
void Describe(A& fields, Of<A, StepTimes>& times) {
  constexpr std::size_t kCounts = kStepTimeBounds.size() + 1;
  fields.Field("counts", times.counts, {.min = 0, .max = 1e15, .min_items = kCounts, .max_items = kCounts});
  fields.Field("seconds", times.seconds, limits::kSeconds);
}

}  // namespace lockstep::protocol
