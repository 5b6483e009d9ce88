#pragma once
// What is to be done about the pods of a job that failed. Pure.
//
// A charged failure costs an attempt of failurePolicy.maxRestarts. The charge is made crash-safe by its
// order: the pod is marked with the attempt, then the status shows it, and only then the pod goes; whoever
// reads any state between comes to the same count. So it is with a slot that is given up: first the status
// shows it.
//
// A rank that dies in a living pod is respawned there and costs nothing, unless a rule says more. Pods of a
// node at fault, and those with an unhealthy device, go at nobody's expense. On a node that is ill but
// answers, only those go that were there when the fault was noticed: one that comes later had no other place,
// and would only come back.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/avoided_nodes.h"
#include "operator/reconcile/failure_rules.h"
#include "operator/reconcile/observed.h"
#include "runtime/common/rendezvous/round.h"

namespace lockstep::reconcile {

struct FailureDecision {
  std::optional<FailureVerdict> job_failure;  // the job must end
  int32_t attempt = 0;                        // what status.attempt must be
  std::vector<Pod> to_mark;                   // with `attempt`
  std::vector<Pod> to_delete;                 // accounted for: their slots become free
  bool recreates = false;                     // all pods go, and these last: they say why
  std::vector<int64_t> to_give_up;            // slots to add to status.givenUpSlots
  std::vector<NodeSuspicion> suspects;        // nodes for status.avoidedNodes
  std::vector<rendezvous::PodEnd> lost;       // pods that the rendezvous should not wait for
  std::vector<std::string> notes;             // for events: one for each pod marked, uncharged or given up
  std::optional<Seconds> wait;                // until a pod that ended at once may be replaced
};

// `pods` are those of wanted slots. Looks at every one that failed or should go and is not being deleted.
[[nodiscard]] FailureDecision DecideFailures(const Observed& observed, const std::vector<Pod>& pods);

// status.givenUpSlots, unless the spec has changed since.
[[nodiscard]] std::vector<int64_t> GivenUpSlots(const api::TrainingJob& job);
[[nodiscard]] bool IsGivenUp(const api::TrainingJob& job, int32_t slot);

}  // namespace lockstep::reconcile
