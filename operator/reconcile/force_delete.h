#pragma once
// Pods with a deletionTimestamp on a node that does not answer: runPolicy.forceDeleteAfterSeconds. Pure.
//
// The time counts from the deletion request, because on a dead node no process uses the grace period. If the
// worker is still alive, the rendezvous fences it.

#include <optional>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct ForceDeletion {
  std::vector<Pod> due;
  std::optional<Seconds> next;  // time until the next pod may be deleted
};

[[nodiscard]] ForceDeletion FindForceDeletions(const Observed& observed);

}  // namespace lockstep::reconcile
