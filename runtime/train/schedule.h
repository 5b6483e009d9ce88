#pragma once
// The learning rate as a function of the step, so that nothing has to be saved. Pure.

#include <cstdint>

#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

// For step `step` (from 0) of `total_steps`. The warm-up climbs linearly from 0: step s uses (s + 1) /
// warmup_steps of the rate, so that the first step already learns. What follows counts from the end of the
// warm-up.
[[nodiscard]] double LearningRate(const api::ScheduleSpec& schedule, double base_rate, int64_t step,
                                  int64_t total_steps);

}  // namespace lockstep::train
