#pragma once
// Restores the state from a checkpoint on all ranks of a round together. Each rank reads a part from the
// store: of replicated state a share, which it then sends to the others; of a sharded optimizer or of divided
// layers its own part. Checkpoints of another world size or another strategy are read the same way, because
// they store whole tensors.
//
// A rank that holds no step reads its share directly into its own CPU tensors, so it needs memory for one
// state. A rank that still holds a step reads into separate memory until every rank has read its part. Only
// then do the ranks write, and an error during that leaves a torn state (training_state.h). Step thread.

#include <functional>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

// Restores the checkpoint that spec.checkpoint.resume selects (rank 0 finds it): the full state on all ranks,
// or nothing. If it belongs to another job, spec.checkpoint.restore can limit it to the weights, at step 0.
// All ranks skip a checkpoint that any rank finds damaged. Returns false if there is no checkpoint to start
// from; the state may be torn then. kInvalidArgument: it does not fit spec.training. kAborted: the round
// broke, or another rank could not read. kInternal: for example lack of memory. Any other error comes from
// the store. If the store does not answer (Error::IsTransient), all ranks return that error together and may
// try again in the same round. Rank 0 first calls `claim`.
[[nodiscard]] Result<bool> RestoreTogether(
    comm::Communicator& communicator, checkpoint::Checkpointer& checkpointer, TrainingState& state,
    const std::function<Result<void>()>& claim = [] { return Result<void>(); });

}  // namespace lockstep::train
