#pragma once
// A change of spec.worker.template while the job runs: pods of an older template are replaced one at a time,
// each once the world is full again, so that the others keep the state and no step is lost. Pure.

#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Hash of the template as the user wrote it, so that an upgrade of the operator replaces no pods.
[[nodiscard]] std::string TemplateHash(const api::TrainingJobSpec& spec);

struct Rollout {
  int64_t outdated = 0;         // pods of an older template
  std::vector<Pod> to_replace;  // in this pass
};

[[nodiscard]] Rollout FindRollout(const Observed& observed, const PodGroups& groups);

}  // namespace lockstep::reconcile
