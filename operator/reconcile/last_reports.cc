#include "operator/reconcile/last_reports.h"

#include <algorithm>

#include "runtime/common/protocol/last_report.h"
#include "runtime/common/rendezvous/last_report.h"

namespace lockstep::reconcile {
namespace {

constexpr std::chrono::seconds kPrecision{1};  // the kubelet truncates the end time to whole seconds

// The newest time in the status at which an operator observed a change.
WallTime LastSeen(const api::TrainingJobStatus& status) {
  WallTime last = status.start_time.value_or(WallTime{});
  for (const api::Condition& seen : status.conditions) last = std::max(last, seen.last_transition_time);
  if (status.progress) last = std::max(last, status.progress->last_progress_time.value_or(WallTime{}));
  return last;
}

}  // namespace

void TakeLastReports(const protocol::JobIdentity& job, const std::vector<Pod>& pods,
                     rendezvous::RendezvousView& view) {
  for (const Pod& pod : pods) {
    if (pod.phase != PodPhase::kSucceeded || !pod.ended) continue;
    const auto report = protocol::DecodeLastReport(pod.message);
    if (report && report->job == job && report->member.pod_uid == pod.uid)
      rendezvous::TakeLastReport(*report, *pod.ended, view);
  }
}

WallTime EndOfTraining(const std::vector<Pod>& pods, const api::TrainingJobStatus& status, WallTime now) {
  std::optional<WallTime> newest;
  for (const Pod& pod : pods) {
    if (pod.phase == PodPhase::kSucceeded && pod.ended)
      newest = std::max(newest.value_or(*pod.ended), *pod.ended);
  }
  return newest ? std::min(now, std::max(LastSeen(status), *newest + kPrecision)) : now;
}

}  // namespace lockstep::reconcile
