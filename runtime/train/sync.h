#pragma once
// Makes the state equal on all ranks of a new round, at the least cost: nothing is sent where all hold the
// same, otherwise everything comes from a rank that holds the highest step. A rank's own state is replaced
// only when all of the other's has arrived, so a source that dies half-way costs nobody what he holds. Step
// thread.

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

enum class StateSource { kKept, kPeer, kCopy, kCheckpoint, kFresh };
[[nodiscard]] std::string_view NameOf(StateSource source);

// Loads a stored state into `state` (see RestoreTogether), or false: `state` is as before the first step. All
// ranks are asked, and only where they do not hold one together.
using Restore = std::function<Result<bool>(TrainingState& state)>;

// Afterwards every rank's state has the same step (>= 0) and the same bits. kAborted: the round broke. Any
// other error is `restore`'s.
[[nodiscard]] Result<StateSource> SyncState(comm::Communicator& communicator, TrainingState& state,
                                            const Restore& restore);

// Rank 0's buffers (running statistics) to all, before they are evaluated or stored. Nothing is sent where
// the model has none.
[[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator, TrainingState& state);

}  // namespace lockstep::train
