#pragma once
// Creates the gradient strategy that a job selects, and rejects models that cannot be trained with it. Step
// thread.

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/replicated/replicated_model.h"

namespace lockstep::train {

// For one round. kInvalidArgument, with the field's name: the model does not support the strategy. kAborted:
// the round broke.
[[nodiscard]] Result<std::unique_ptr<parallel::Strategy>> MakeStrategy(
    const api::TrainingSpec& spec, std::shared_ptr<comm::Communicator> communicator,
    const ReplicatedModel& state);

}  // namespace lockstep::train
