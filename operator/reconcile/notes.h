#pragma once
// Which events a pass is worth: what began, what ended, and what a user should act on. Derived from the
// difference between the old and the new status, so that repeating a pass tells nothing twice. Pure.

#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/decision.h"
#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

[[nodiscard]] std::vector<kube::EventNote> MakeNotes(const Observed& observed, const Decision& decision,
                                                     const Plan& plan);
// Of the conditions that became true from `before` to `after`.
[[nodiscard]] std::vector<kube::EventNote> NotesOfConditions(const api::TrainingJobStatus& before,
                                                             const api::TrainingJobStatus& after);

}  // namespace lockstep::reconcile
