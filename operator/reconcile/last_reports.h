#pragma once
// The end of a job as its pods report it: their last reports (protocol/last_report.h) and their time. Pure.

#include <vector>

#include "operator/reconcile/pods.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// Adds the last reports of the pods that completed the training to the view. A report that names another job
// or pod than the one that wrote it is ignored.
void TakeLastReports(const protocol::JobIdentity& job, const std::vector<Pod>& pods,
                     rendezvous::RendezvousView& view);

// When the last pod that completed the training ended; `now` if no pod reports it. Nodes have clocks of their own:
// the result is not before what an operator has seen of the job, by `status`, and not after `now`.
[[nodiscard]] WallTime EndOfTraining(const std::vector<Pod>& pods, const api::TrainingJobStatus& status,
                                     WallTime now);

}  // namespace lockstep::reconcile
