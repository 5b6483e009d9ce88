#pragma once
// Which writes give a job the objects that it needs in addition to its pods. Pure.

#include <vector>

#include "operator/reconcile/action.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// For a running job.
void PlanObjects(const Observed& observed, std::vector<PlannedAction>& actions);
// For a job that is held: its workers must be able to connect when the certificate authority changes.
void PlanAuthority(const Observed& observed, std::vector<PlannedAction>& actions);
// For a finished job: it is no longer scaled.
void PlanObjectsOfFinished(const Observed& observed, std::vector<PlannedAction>& actions);

}  // namespace lockstep::reconcile
