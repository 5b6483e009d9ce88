#include "operator/reconcile/force_delete.h"

#include <algorithm>

namespace lockstep::reconcile {
namespace {

// A node that was deleted from the cluster counts as dead.
bool IsDead(const Observed& observed, const std::string& name) {
  if (!observed.nodes || name.empty()) return false;
  const auto node = observed.nodes->find(name);
  return node == observed.nodes->end() || IsLost(node->second);
}

}  // namespace

ForceDeletion FindForceDeletions(const Observed& observed) {
  ForceDeletion deletion;
  const Seconds patience(observed.job.spec.run_policy.force_delete_after_seconds);
  for (const Pod& pod : observed.pods) {
    if (!pod.deletion_requested || !IsDead(observed, pod.node)) continue;
    const Seconds left = patience - Seconds(observed.now - *pod.deletion_requested);
    if (left <= Seconds(0)) {
      deletion.due.push_back(pod);
    } else {
      deletion.next = std::min(deletion.next.value_or(left), left);
    }
  }
  return deletion;
}

}  // namespace lockstep::reconcile
