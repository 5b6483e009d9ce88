#pragma once
// The end of a job according to the last reports of its pods (protocol/last_report.h). Pure.

#include <vector>

#include "operator/reconcile/pods.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// Adds the last reports of the pods that completed the training to the view. Ignores a report that names
// another job or pod than the one that wrote it.
void TakeLastReports(const protocol::JobIdentity& job, const std::vector<Pod>& pods,
                     rendezvous::RendezvousView& view);

// When the last pod that completed the training ended; `now` if no pod reports it. Clocks of nodes differ:
// the result is limited to the time between the operator's last observation, from `status`, and `now`.
[[nodiscard]] WallTime EndOfTraining(const std::vector<Pod>& pods, const api::TrainingJobStatus& status,
                                     WallTime now);

}  // namespace lockstep::reconcile
