#pragma once
// checkpoint.deleteWithJob: what a deleted job without workers still waits for. A pod removes the files that
// the job stored. If it fails, another one is tried after pauses that double, for kRemovalPatience in total.
// Then the job is released anyway, with an event that says what remains and how to remove it, so that a
// deletion always ends. Pure; the state of earlier passes is in the condition CheckpointsRemoved.

#include <optional>
#include <string>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

struct RemovalDecision {
  bool starts = false;           // create the removal pod
  std::optional<Pod> to_delete;  // a removal pod that has succeeded or failed
  bool is_over = false;          // the job may be released; `reason` says why
  std::string reason;
  std::optional<std::string> waits_for;  // message of the condition
  std::vector<kube::EventNote> notes;
  std::optional<Seconds> next;
};

[[nodiscard]] RemovalDecision DecideRemoval(const Observed& observed);

}  // namespace lockstep::reconcile
