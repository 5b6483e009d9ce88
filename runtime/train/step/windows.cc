#include "runtime/train/step/windows.h"

#include <algorithm>

namespace lockstep::train {

int64_t StepsOfAWindow(const api::TrainingSpec& training) {
  switch (training.strategy) {
    case api::Strategy::kLocalsgd: return training.sync.every_steps;
    case api::Strategy::kAsync: return training.sync.staleness;
    default: return 1;
  }
}

Windows::Windows(const api::TrainingSpec& training, const std::optional<int64_t>& save_interval_steps,
                 int64_t steps_per_epoch, int64_t total_steps)
    : total_steps_(total_steps) {
  every_.push_back(StepsOfAWindow(training));
  if (training.evaluation.has_value()) every_.push_back(training.evaluation->every_epochs * steps_per_epoch);
  if (save_interval_steps.has_value()) every_.push_back(*save_interval_steps);
}

int64_t Windows::EndAfter(int64_t step) const {
  int64_t end = total_steps_;
  for (const int64_t every : every_) end = std::min(end, (step / every + 1) * every);
  return end;
}

}  // namespace lockstep::train
