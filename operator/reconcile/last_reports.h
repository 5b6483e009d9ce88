#pragma once
// The end of a job as its pods report it: their last reports (protocol/last_report.h) and their time. Pure.

#include <vector>

#include "operator/reconcile/pods.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// Adds the last reports of the pods that completed the training to the view. A report that names another job
// or pod than the one that wrote it is ignored.
void TakeLastReports(const protocol::JobIdentity& job, const std::vector<Pod>& pods,
                     rendezvous::RendezvousView& view);

// When the last pod that completed the training ended; `now` if no pod reports it. Never after `now`.
[[nodiscard]] WallTime EndOfTraining(const std::vector<Pod>& pods, WallTime now);

}  // namespace lockstep::reconcile
