#pragma once
// schedulingPolicy.topology: schedules the pods of a job close together. Pure.

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

// Adds affinity to a pod's spec, in addition to that of its template. With Required the first pod may be
// scheduled anywhere, because it matches its own term.
void KeepTogether(Json& pod_spec, const api::TrainingJob& job);

}  // namespace lockstep::reconcile
