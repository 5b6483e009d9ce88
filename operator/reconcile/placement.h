#pragma once
// schedulingPolicy.topology: keeps the pods of a job close together. Pure.

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

// Adds to a pod's spec, beside what its template says. With Required the scheduler lets the first pod go
// anywhere: it matches its own term.
void KeepTogether(Json& pod_spec, const api::TrainingJob& job);

}  // namespace lockstep::reconcile
