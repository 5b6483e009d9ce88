#pragma once
// What the first step would pay for, paid before the rank says Ready: pages of LibTorch, kernels chosen for
// the model's shapes, threads, and the unwinder's tables (the first exception in a process this size takes
// tens of milliseconds, and recovery begins with one). A joining rank then costs the others nothing. Step
// thread, before the loop.

#include "runtime/common/api/training_spec.h"
#include "runtime/data/dataset.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

// One forward and backward pass that leaves no trace in `state`. An error means that model and data do not
// fit, or has the code of what the data set threw. Without a pass where layers are divided over the ranks.
[[nodiscard]] Result<void> WarmUp(const api::TrainingSpec& spec, const data::Dataset& dataset,
                                  TrainingState& state);

}  // namespace lockstep::train
