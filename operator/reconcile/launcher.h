#pragma once
// What a pod needs to run a program of the user's own, in an image that knows nothing of Lockstep: an init
// container that puts `lockstep` with its libraries and its loader into a volume, and the trainer's command
// wrapped in it. Pure.

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Into a pod that is complete but for this. A job with spec.training is left alone: its image brings all it
// needs.
void AddLauncher(Json& pod, const api::TrainingJob& job, const ClusterSettings& settings);

}  // namespace lockstep::reconcile
