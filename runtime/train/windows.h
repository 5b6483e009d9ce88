#pragma once
// After which steps the ranks hold the same again and anything else can happen: after every step, or with
// localsgd and async after every H-th one and wherever an evaluation, a save by steps or the end is due.
// Counted from the first step of the training, so the windows are the same ones in every round. Pure.

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

// Whether ranks take steps alone between two points where they hold the same.
[[nodiscard]] inline bool TakesWindows(const api::TrainingSpec& training) {
  return training.strategy == api::Strategy::kLocalsgd || training.strategy == api::Strategy::kAsync;
}

// Most steps of a window; 1 without windows.
[[nodiscard]] int64_t StepsOfAWindow(const api::TrainingSpec& training);

class Windows {
 public:
  Windows(const api::TrainingSpec& training, const std::optional<int64_t>& save_interval_steps,
          int64_t steps_per_epoch, int64_t total_steps);

  // The end of the window that a rank which holds the state after `step` steps is in.
  [[nodiscard]] int64_t EndAfter(int64_t step) const;

 private:
  std::vector<int64_t> every_;
  int64_t total_steps_;
};

}  // namespace lockstep::train
