#pragma once
// What to do about failed pods of a job. Pure.
//
// A charged failure uses up one of failurePolicy.maxRestarts. The order of writes makes the charge
// crash-safe: first the pod is marked with the attempt, then the status shows it, and only then the pod is
// deleted. A pass that reads any state between computes the same count. A slot that is given up is handled
// likewise: the status shows it first.
//
// A rank that dies in a running pod is respawned there at no charge, unless a rule says otherwise. Pods on an
// unhealthy node and pods with an unhealthy device are replaced at no charge. If the node is unhealthy but
// reachable, only pods that existed when the fault was noticed are replaced: a later pod was scheduled there
// because there was no other node, and its replacement would be, too.

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
  std::optional<FailureVerdict> job_failure;  // the job must fail
  int32_t attempt = 0;                        // required value of status.attempt
  std::vector<Pod> to_mark;                   // to be annotated with `attempt`
  std::vector<Pod> to_delete;                 // their failure is recorded: their slots become free
  bool recreates = false;  // all pods are deleted; those that failed last, because they hold the reason
  std::vector<int64_t> to_give_up;       // slots to add to status.givenUpSlots
  std::vector<NodeSuspicion> suspects;   // nodes for status.avoidedNodes
  std::vector<rendezvous::PodEnd> lost;  // pods for which the rendezvous should not wait
  // for events: one for each pod that is marked, replaced uncharged or given up
  std::vector<std::string> notes;
  std::optional<Seconds> wait;  // time until a pod that failed at once may be replaced
};

// `pods` are those of wanted slots. Considers each pod that failed or should be replaced and is not being
// deleted.
[[nodiscard]] FailureDecision DecideFailures(const Observed& observed, const std::vector<Pod>& pods);

// status.givenUpSlots; empty if the spec has changed since.
[[nodiscard]] std::vector<int64_t> GivenUpSlots(const api::TrainingJob& job);
[[nodiscard]] bool IsGivenUp(const api::TrainingJob& job, int32_t slot);

}  // namespace lockstep::reconcile
