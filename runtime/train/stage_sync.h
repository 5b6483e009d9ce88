#pragma once
// SyncState (sync.h) where the layers of the model are divided over the ranks. Step thread.

#include "runtime/train/sync.h"

namespace lockstep::train {

// Afterwards the ranks together hold all of one state, each the part that its place in the round asks for.
// What is lost is logged.
[[nodiscard]] Result<StateSource> SyncStages(comm::Communicator& communicator, TrainingState& state,
                                             const Restore& restore);

// What a copy of the state is to be kept with.
[[nodiscard]] StepFacts FactsOf(const TrainingState& state);

}  // namespace lockstep::train
