#pragma once
// The state from a checkpoint, on all ranks of a round together. Each rank reads a part of it from the store:
// of what all hold, each a share, which the others get from it; of a divided optimizer and of divided layers,
// its own. What an earlier world or another strategy wrote is read alike: parts of whole tensors.
//
// A rank that holds no step reads its share into its own tensors, where these are on the CPU, and so needs
// memory for one state. One that still holds a step reads into room of its own until every rank has read its
// part. From then on all write, and an error leaves a state that is torn (training_state.h). Step thread.

#include <functional>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/comm/communicator.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

// What spec.checkpoint.resume says, which rank 0 finds; all of it, on all ranks, or no step. Of another job's
// checkpoint it is the weights alone, at step 0, where spec.checkpoint.restore says so. A checkpoint that any
// rank finds damaged is passed over by all. False: there is none to begin from; the state may be torn.
// kInvalidArgument: it does not fit spec.training; kAborted: the round broke, or another rank could not read;
// kInternal: lack of memory, for example; any other error is the store's. That the store does not answer
// (Error::IsTransient) all ranks say together, whichever of them met it: they may try again in this round.
// `claim`: what rank 0 does first.
[[nodiscard]] Result<bool> RestoreTogether(
    comm::Communicator& communicator, checkpoint::Checkpointer& checkpointer, TrainingState& state,
    const std::function<Result<void>()>& claim = [] { return Result<void>(); });

}  // namespace lockstep::train
