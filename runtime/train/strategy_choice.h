#pragma once
// Which strategy a job asked for, and whether its model can be trained that way. Step thread.

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/parallel/strategy.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

// For a round. kInvalidArgument, with the field's name, where the model does not allow it; kAborted: the
// round broke.
[[nodiscard]] Result<std::unique_ptr<parallel::Strategy>> MakeStrategy(
    const api::TrainingSpec& spec, std::shared_ptr<comm::Communicator> communicator,
    const TrainingState& state);

}  // namespace lockstep::train
