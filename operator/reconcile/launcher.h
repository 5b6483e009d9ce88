#pragma once
// What a pod needs to run a program of the user's own in an image without Lockstep: an init container that
// copies `lockstep` with its libraries and its loader into a volume, and the trainer's command wrapped in it.
// Pure.

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Changes a pod that is otherwise complete. Does nothing for a job with spec.training, whose image has
// everything.
void AddLauncher(Json& pod, const api::TrainingJob& job, const ClusterSettings& settings);

}  // namespace lockstep::reconcile
