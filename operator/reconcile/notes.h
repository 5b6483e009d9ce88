#pragma once
// The events of a pass: what began, what ended, and what a user should act on. Derived from the difference
// between the old and the new status, so that repeating a pass creates no second event. Pure.

#include <string>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/reconcile/action.h"
#include "operator/reconcile/decision.h"

namespace lockstep::reconcile {

[[nodiscard]] std::vector<kube::EventNote> MakeNotes(const Observed& observed, const Decision& decision,
                                                     const std::vector<PlannedAction>& actions,
                                                     const api::TrainingJobStatus& after);
// For a job that another installation runs.
[[nodiscard]] kube::EventNote NoteOfConflict(const std::string& message);
// The events for what is in `after` but not yet in the job's status: broken rounds, damaged checkpoints,
// conditions.
[[nodiscard]] std::vector<kube::EventNote> NotesOfStatus(const Observed& observed,
                                                         const api::TrainingJobStatus& after);

}  // namespace lockstep::reconcile
