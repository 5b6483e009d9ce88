#include "runtime/common/rendezvous/last_report.h"

#include <algorithm>
#include <tuple>

#include "runtime/common/rendezvous/facts.h"

namespace lockstep::rendezvous {

void TakeLastReport(const protocol::Heartbeat& report, WallTime ended, RendezvousView& view) {
  view.completed = true;
  view.round = std::max(view.round, report.progress.round);
  const auto reached = [](const protocol::Progress& progress) {
    return std::tuple(progress.round, progress.step);
  };
  if (reached(report.progress) > reached(view.progress)) {
    view.progress = report.progress;
    view.best_step = std::max(view.best_step, report.progress.step);
    view.last_progress_time = ended;
    view.step_time = StepTimeOf(report, ended);
  } else if (reached(report.progress) == reached(view.progress)) {
    // The kubelet cuts `ended` to whole seconds, so the latest value is the nearest.
    view.step_time = std::max(view.step_time, StepTimeOf(report, ended));
  }
  TakeFacts(report, ended, view);
}

}  // namespace lockstep::rendezvous
