#pragma once
// Determines after which steps the ranks hold the same state, so that saves, evaluations and membership
// changes are possible: after every step, or with localsgd and async after every H-th step and when an
// evaluation, a save by steps or the end is due. Counted from the first step of the training, so the windows
// are the same in every round. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

// Whether ranks take steps alone between two points where their states are equal.
[[nodiscard]] inline bool TakesWindows(const api::TrainingSpec& training) {
  return training.strategy == api::Strategy::kLocalsgd || training.strategy == api::Strategy::kAsync;
}

// The maximum number of steps in a window; 1 without windows.
[[nodiscard]] int64_t StepsOfAWindow(const api::TrainingSpec& training);

class Windows {
 public:
  Windows(const api::TrainingSpec& training, const std::optional<int64_t>& save_interval_steps,
          int64_t steps_per_epoch, int64_t total_steps);

  // The end of the window that contains the step after `step` completed steps.
  [[nodiscard]] int64_t EndAfter(int64_t step) const;

 private:
  std::vector<int64_t> every_;
  int64_t total_steps_;
};

}  // namespace lockstep::train
