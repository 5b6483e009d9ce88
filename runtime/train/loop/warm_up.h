#pragma once
// Does the work that would slow down the first step before the rank reports Ready: pages of LibTorch, kernels
// for the model's shapes, threads, and the unwinder's tables (the first exception in a process of this size
// takes tens of milliseconds, and recovery begins with one). So a joining rank does not delay the others.
// Step thread, before the loop.

#include "runtime/common/api/training_spec.h"
#include "runtime/data/dataset.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

// Runs one forward and backward pass that leaves no trace in `state`. An error means that model and data do
// not fit, or has the code of what the data set threw. Skips the pass if layers are divided over the ranks.
[[nodiscard]] Result<void> WarmUp(const api::TrainingSpec& spec, const data::Dataset& dataset,
                                  TrainingState& state);

}  // namespace lockstep::train
