#pragma once
// Job → the pod that removes the job's checkpoints from the store: the user's template, reduced to what
// access to the store needs. Pure.

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// It has no owner: if a job is deleted with its dependents first (`--cascade=foreground`, Argo CD), the
// garbage collector would delete the pod repeatedly. `has_account`: the job's own account still exists.
[[nodiscard]] Json DesiredRemovalPod(const api::TrainingJob& job, bool has_account);

// The arguments of the removal command, also for messages.
[[nodiscard]] std::vector<std::string> RemovalCommand(const api::TrainingJob& job);

// The time limit of one pod, and of all together.
inline constexpr std::chrono::seconds kRemovalPatience{600};

}  // namespace lockstep::reconcile
