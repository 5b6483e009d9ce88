#pragma once
// How a job ended, by its pods: what they reported last (protocol/last_report.h), and when. Pure.

#include <vector>

#include "operator/reconcile/pods.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// Adds to the view what the pods reported that have reached the end of the training. A report that names
// another job or pod than the one that wrote it counts for nothing.
void TakeLastReports(const protocol::JobIdentity& job, const std::vector<Pod>& pods,
                     rendezvous::RendezvousView& view);

// When the last of the pods ended that have reached the end of the training; `now` where none says so, and at the
// latest.
[[nodiscard]] WallTime EndOfTraining(const std::vector<Pod>& pods, WallTime now);

}  // namespace lockstep::reconcile
