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
    view.seconds_since_step = 0;
  }
  if (reached(report.progress) == reached(view.progress))
    view.seconds_since_step = std::max(view.seconds_since_step, report.seconds_since_step);
  TakeFacts(report, ended, view);
}

}  // namespace lockstep::rendezvous
