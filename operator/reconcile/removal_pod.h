#pragma once
// job → the pod that removes from the store what the job stored there: the user's template, reduced to what
// reaching the store takes. Pure.

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// It has no owner: where a job is deleted with its dependents first (`--cascade=foreground`, Argo CD), the
// garbage collector would end it again and again. `has_account`: the job's own account is there (yet).
[[nodiscard]] Json DesiredRemovalPod(const api::TrainingJob& job, bool has_account);

// The words of the command that does it, for people as well.
[[nodiscard]] std::vector<std::string> RemovalCommand(const api::TrainingJob& job);

// How long a pod, and all of them together, may take.
inline constexpr std::chrono::seconds kRemovalPatience{600};

}  // namespace lockstep::reconcile
