#pragma once
// Makes the state equal on all ranks of a new round, at the lowest cost: nothing is sent if all ranks hold
// the same state, otherwise a rank with the highest step broadcasts it chunk by chunk. If the source dies
// half-way, no rank may lose a state from which training could continue, and a rank must not need memory for
// two states. So what a rank does with a chunk depends on what it holds:
//   the same state     Drops it: it participates because a broadcast is one operation of all ranks.
//   no step            Writes it into its own tensors. If the source dies, they are a mixture. The step is -1
//                      from the first write to the last, so no rank continues from them, and `is_torn` is set
//                      until then, so they are not taken for a fresh state either.
//   another state      The same where ranks on two hosts hold the best state: the next round has it from the
//                      other one. Otherwise keeps each chunk in host memory, as its own state is the newest
//                      one if the source dies. Its tensors are written when the last chunk has arrived, and
//                      the step is -1 meanwhile.
// So a rank that has the state needs memory for one chunk (broadcast.h), and any other rank for its state and
// one chunk. A rank that is behind, while only one host holds the best state, needs additional host memory
// for one state, but no device memory. Step thread.

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

enum class StateSource { kKept, kPeer, kCopy, kCheckpoint, kFresh };
[[nodiscard]] std::string_view NameOf(StateSource source);

// Loads a stored state into `state` (see RestoreTogether). Returns false if `state` is that before the first
// step; a torn state has been initialised again then. All ranks call it, and only if they do not hold a
// complete state together.
using Restore = std::function<Result<bool>(TrainingState& state)>;

// Afterwards every rank's state has the same step (>= 0) and the same bits. kAborted: the round broke.
// kInternal: LibTorch failed, for example for lack of memory. Any other error comes from `restore`.
[[nodiscard]] Result<StateSource> SyncState(comm::Communicator& communicator, TrainingState& state,
                                            const Restore& restore);

// Copies rank 0's buffers (running statistics) to all ranks, before an evaluation or a save. Sends nothing if
// the model has none.
[[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator, TrainingState& state);

}  // namespace lockstep::train
