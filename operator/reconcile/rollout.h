#pragma once
// A change of spec.worker.template while the job runs: pods made from an older one are replaced one at a
// time, each once the world is full again, so that the others hold the state and no step is lost. Pure.

#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Of the template as the user wrote it: an operator of another version must not replace pods.
[[nodiscard]] std::string TemplateHash(const api::TrainingJobSpec& spec);

struct Rollout {
  int64_t outdated = 0;         // pods of an older template
  std::vector<Pod> to_replace;  // now
};

[[nodiscard]] Rollout FindRollout(const Observed& observed, const PodGroups& groups);

}  // namespace lockstep::reconcile
