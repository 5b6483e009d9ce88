#pragma once
// The learning rate as a function of the step, so there is no scheduler state to save. Pure.

#include <cstdint>

#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

// The rate of step `step` (from 0) of `total_steps`. The warm-up rises linearly: step s uses (s + 1) /
// warmup_steps of the rate, so the first step already learns. The schedule after it counts from the end of
// the warm-up.
[[nodiscard]] double LearningRate(const api::ScheduleSpec& schedule, double base_rate, int64_t step,
                                  int64_t total_steps);

}  // namespace lockstep::train
