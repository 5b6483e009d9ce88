#pragma once
// SyncState (sync.h) for models whose layers are divided over the ranks. Step thread.

#include "runtime/train/sync.h"

namespace lockstep::train {

// Afterwards the ranks together hold one complete state, each rank the part for its position in the round.
// What is lost is logged.
[[nodiscard]] Result<StateSource> SyncStages(comm::Communicator& communicator, TrainingState& state,
                                             const Restore& restore);

// The facts that are stored with a copy of the state.
[[nodiscard]] StepFacts FactsOf(const TrainingState& state);

}  // namespace lockstep::train
