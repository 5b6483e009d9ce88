#pragma once
// All or nothing: a job of which not enough pods found a node within
// schedulingPolicy.gang.scheduleTimeoutSeconds gives all their places back, and tries again after a while. So
// does any job of which the API server admits only some pods, for lack of quota above all, after five minutes
// where the spec names no time; it counts from the first refusal. So two jobs that each hold half of what they need do not wait for each other for ever.
// Schedulers that know gangs look after the nodes themselves, but no scheduler knows of pods that were never
// made. Pure.
//
// Only before the first round: later on, members hold the state. Crash-safe as a charge is: first the status
// says that the places are given back, then the pods go.

#include <optional>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct GangStart {
  bool holds_back = false;      // no pod is created
  bool is_refused = false;      // it does because the API server refuses some of them: Stalled stays
  std::vector<Pod> to_delete;   // while it does
  std::optional<Seconds> next;  // until it changes
  std::optional<api::GangStatus> status;  // for status.gang; absent: there is nothing to remember
  std::string note;                       // for an event: what was just given back
};

[[nodiscard]] GangStart DecideGangStart(const Observed& observed, const PodGroups& groups);

}  // namespace lockstep::reconcile
