#pragma once
// checkpoint.deleteWithJob: what a deleted job whose workers are gone still waits for. A pod removes what the
// job stored; where it fails another one is tried, after pauses that double, for kRemovalPatience in all.
// Then the job goes nevertheless, and an event says what stays and how to remove it: a deletion never hangs
// for ever. Pure; what it has to know of the passes before stands in the condition CheckpointsRemoved.

#include <optional>
#include <string>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct RemovalDecision {
  bool starts = false;           // a pod is to be made
  std::optional<Pod> to_delete;  // one that has done its work, or failed
  bool is_over = false;          // the job may go, and why:
  std::string reason;
  std::optional<std::string> waits_for;  // message of the condition
  std::vector<kube::EventNote> notes;
  std::optional<Seconds> next;
};

[[nodiscard]] RemovalDecision DecideRemoval(const Observed& observed);

}  // namespace lockstep::reconcile
