#pragma once
// What is to be written so that a job has the objects it wants beside its pods. Pure.

#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

// Of a job that runs.
void PlanObjects(const Observed& observed, std::vector<PlannedAction>& actions);
// Of one that is left as it is: its workers must be able to connect when the authority changes.
void PlanAuthority(const Observed& observed, std::vector<PlannedAction>& actions);
// Of one that has finished: nothing scales it any more.
void PlanObjectsOfFinished(const Observed& observed, std::vector<PlannedAction>& actions);

}  // namespace lockstep::reconcile
