#pragma once
// The decision of a whole pass: Observed → what to write, why, and which events to record. Combines the
// policies. Pure: the same input gives the same plan, and carrying out a plan twice is harmless.

#include <chrono>
#include <optional>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/action.h"
#include "operator/reconcile/gpus.h"
#include "operator/reconcile/observed.h"
#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::reconcile {

struct Plan {
  bool ignored = false;                               // the job is not ours: write nothing
  std::vector<rendezvous::PodEnd> lost;               // reported to the rendezvous first
  std::vector<PlannedAction> actions;                 // carried out in this order
  std::optional<rendezvous::JobSettings> rendezvous;  // absent: drop the job's rounds, unless …
  bool keeps_rendezvous = false;        // … this is true: they continue with their present settings
  api::TrainingJobStatus status;        // written last, and only if it differs
  std::vector<kube::EventNote> events;  // recorded once the status is written
  GpuCount gpus;                        // for metrics
  std::optional<std::chrono::milliseconds> requeue_after;
};

[[nodiscard]] Plan MakePlan(const Observed& observed);

}  // namespace lockstep::reconcile
