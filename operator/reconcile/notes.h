#pragma once
// Which events a pass is worth: what began, what ended, and what a user should act on. Derived from the
// difference between the old and the new status, so that repeating a pass tells nothing twice. Pure.

#include <string>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/decision.h"
#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

[[nodiscard]] std::vector<kube::EventNote> MakeNotes(const Observed& observed, const Decision& decision,
                                                     const Plan& plan);
// For a job that another installation runs.
[[nodiscard]] kube::EventNote NoteOfConflict(const std::string& message);
// The events of MakeNotes that say what `after` has and the job's status has not: broken rounds, damaged checkpoints,
// conditions.
[[nodiscard]] std::vector<kube::EventNote> NotesOfStatus(const Observed& observed,
                                                         const api::TrainingJobStatus& after);

}  // namespace lockstep::reconcile
