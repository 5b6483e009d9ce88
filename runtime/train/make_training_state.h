#pragma once
// Makes the state of the strategy that the spec names.

#include <memory>
#include <span>

#include "runtime/train/state/training_state.h"

namespace lockstep::train {

// As it is before the first step, on the first device; zero1 and pipeline keep copies in other pods, which
// have `ranks_in_pod` ranks each. Errors name the field.
[[nodiscard]] Result<std::unique_ptr<TrainingState>> MakeTrainingState(const api::TrainingSpec& spec,
                                                                       const ModelInput& input,
                                                                       std::span<const at::Device> devices,
                                                                       int ranks_in_pod = 1);
// On the CPU.
[[nodiscard]] Result<std::unique_ptr<TrainingState>> MakeTrainingState(const api::TrainingSpec& spec,
                                                                       const ModelInput& input);

}  // namespace lockstep::train
