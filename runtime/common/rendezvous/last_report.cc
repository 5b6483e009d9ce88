#include "runtime/common/rendezvous/last_report.h"

#include <algorithm>
#include <tuple>

#include "runtime/common/protocol/damaged_checkpoints.h"
#include "runtime/common/rendezvous/round_changes.h"

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
  if (report.checkpoint.completed_at > view.checkpoint.completed_at) {
    view.checkpoint = report.checkpoint;
    const Seconds completed(report.checkpoint.completed_at);
    view.checkpoint_time =
        std::min(WallTime(std::chrono::duration_cast<WallTime::duration>(completed)), ended);
  } else if (report.checkpoint.step > view.checkpoint.step) {
    view.checkpoint = report.checkpoint;
    view.checkpoint_time = ended;
    view.saves.push_back(report.checkpoint);
  }
  if (report.evaluation.step > view.evaluation.step) view.evaluation = report.evaluation;
  for (const protocol::CheckpointDamaged& damaged : report.damaged_checkpoints)
    protocol::KeepNewest(view.damaged_checkpoints, damaged);
  for (const protocol::Repair& repair : report.repairs) RecordRepair(report.member, repair, view.changes);
}

}  // namespace lockstep::rendezvous
