#pragma once
// Makes the state equal on all ranks of a new round, at the least cost: nothing is sent where all hold the
// same, otherwise everything comes, chunk by chunk, from a rank that holds the highest step. A source that
// dies half-way must cost nobody a state that training could continue from, and memory has to suffice for
// one state. So what a rank does with a chunk depends on what it holds:
//   the same state     Drops it: it participates because a broadcast is one operation of all ranks.
//   no step            Writes it into its own tensors. If the source dies, they are a mixture. The step is -1
//                      from the first write to the last, so no rank continues from them, and `is_torn` is set
//                      until then, so they are not taken for a fresh state either.
//   another state      The same where ranks on two hosts hold the best state: the next round has it from the
//                      other one. Otherwise keeps each chunk in host memory, as its own state is the newest
//                      one if the source dies. Its tensors are written when the last chunk has arrived, and
//                      the step is -1 meanwhile.
// So a rank that is level needs one chunk (broadcast.h), and any other its state and one chunk; a laggard whose
// peers could lose the best state with one host needs in addition host memory for one state, but no memory of
// its device. Step thread.

#include <cstdint>
#include <functional>
#include <string_view>

#include "runtime/comm/communicator.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

enum class StateSource { kKept, kPeer, kCopy, kCheckpoint, kFresh };
[[nodiscard]] std::string_view NameOf(StateSource source);

// Loads a stored state into `state` (see RestoreTogether), or false: `state` is as before the first step, so
// one that is torn was made again. All ranks are asked, and only where they do not hold one together.
using Restore = std::function<Result<bool>(TrainingState& state)>;

// Afterwards every rank's state has the same step (>= 0) and the same bits. kAborted: the round broke.
// kInternal: LibTorch failed, for example for lack of memory. Any other error is `restore`'s.
[[nodiscard]] Result<StateSource> SyncState(comm::Communicator& communicator, TrainingState& state,
                                            const Restore& restore);

// Rank 0's buffers (running statistics) to all, before they are evaluated or stored. Nothing is sent where
// the model has none.
[[nodiscard]] Result<void> SyncBuffers(comm::Communicator& communicator, TrainingState& state);

}  // namespace lockstep::train
