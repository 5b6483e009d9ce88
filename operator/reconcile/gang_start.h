#pragma once
// All-or-nothing start. If not enough pods of a job find a node within
// schedulingPolicy.gang.scheduleTimeoutSeconds, the job deletes all of its pods and tries again after a
// pause, so that two jobs that each hold half of what they need do not block each other. The same applies to
// any job if the API server admits only some of its pods, mostly for lack of quota: after five minutes if the
// spec sets no time, counted from the first rejection. Schedulers with gang support handle the nodes
// themselves, but no scheduler handles pods that were never created. Pure.
//
// Applies only before the first round: later, members hold the state. Crash-safe: the status records the
// release before the pods are deleted.

#include <optional>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct GangStart {
  bool holds_back = false;  // no pod is created
  // the reason is that the API server rejects some pods: the condition Stalled remains
  bool is_refused = false;
  std::vector<Pod> to_delete;             // pods to delete while holds_back
  std::optional<Seconds> next;            // time until the decision changes
  std::optional<api::GangStatus> status;  // for status.gang; absent: nothing to record
  std::string note;                       // for an event: what was just released
};

[[nodiscard]] GangStart DecideGangStart(const Observed& observed, const PodGroups& groups);

}  // namespace lockstep::reconcile
