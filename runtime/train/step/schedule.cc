#include "runtime/train/step/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::train {
namespace {

// 0 at the first step after the warm-up, 1 at the last step.
double Fraction(const api::ScheduleSpec& schedule, int64_t step, int64_t total_steps) {
  const int64_t span = total_steps - 1 - schedule.warmup_steps;
  if (span <= 0) return 1;
  return std::clamp(static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(span), 0.0, 1.0);
}

}  // namespace

double LearningRate(const api::ScheduleSpec& schedule, double base_rate, int64_t step, int64_t total_steps) {
  if (step < schedule.warmup_steps) {
    return base_rate * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const double floor = schedule.min_learning_rate;
  switch (schedule.name) {
    case api::ScheduleName::kConstant: return base_rate;
    case api::ScheduleName::kStep: {
      const int64_t every = schedule.decay_every_steps.value_or(total_steps);
      const int64_t decays = (step - schedule.warmup_steps) / every;
      return base_rate * std::pow(schedule.decay_factor, static_cast<double>(decays));
    }
    case api::ScheduleName::kCosine: {
      const double half_wave = std::cos(std::numbers::pi * Fraction(schedule, step, total_steps));
      return floor + (base_rate - floor) * 0.5 * (1 + half_wave);
    }
    case api::ScheduleName::kPolynomial:
      return floor +
             (base_rate - floor) * std::pow(1 - Fraction(schedule, step, total_steps), schedule.power);
  }
  return base_rate;
}

}  // namespace lockstep::train
