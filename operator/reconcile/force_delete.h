#pragma once
// Pods that were told to go on a node from which nobody answers: runPolicy.forceDeleteAfterSeconds. Pure.
//
// The time counts from the request: on a dead node nobody uses the grace period. A worker that comes back
// after all is fenced by the rendezvous.

#include <optional>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct ForceDeletion {
  std::vector<Pod> due;
  std::optional<Seconds> next;  // until another one is
};

[[nodiscard]] ForceDeletion FindForceDeletions(const Observed& observed);

}  // namespace lockstep::reconcile
