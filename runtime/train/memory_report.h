#pragma once
// Which memory the ranks of a job need for the training's state with each strategy and number of ranks.

#include <span>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"
#include "runtime/models/model.h"
#include "runtime/train/state/state_memory.h"

namespace lockstep::train {

struct PodShape {
  int ranks = 1;
  int devices = 1;  // of all its ranks
};

// Makes the model in host memory, once for each strategy: that of the spec first, then those that differ in
// what a rank holds. Errors name the field.
[[nodiscard]] Result<StateMemoryReport> ReportMemory(const api::TrainingSpec& spec, const ModelInput& input,
                                                     std::span<const int> worlds, const PodShape& pod);

}  // namespace lockstep::train
