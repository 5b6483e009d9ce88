#include "runtime/common/rendezvous/facts.h"

#include <algorithm>

#include "runtime/common/protocol/damaged_checkpoints.h"
#include "runtime/common/rendezvous/round_changes.h"

namespace lockstep::rendezvous {
namespace {

constexpr std::size_t kKeptSaves = 32;

// A program may write to the same file again, and may continue from a lower step: the newest counts. Clocks of file
// servers differ.
void TakeFound(const protocol::Saved& found, WallTime received, RendezvousView& view) {
  if (found.completed_at <= view.checkpoint.completed_at) return;
  view.checkpoint = found;
  const WallTime completed(std::chrono::duration_cast<WallTime::duration>(Seconds(found.completed_at)));
  view.checkpoint_time = std::min(completed, received);
}

void TakeSaved(const protocol::Saved& saved, WallTime received, RendezvousView& view) {
  if (saved.uri.empty()) return;
  if (saved.completed_at > 0) return TakeFound(saved, received, view);
  if (saved.step < view.checkpoint.step || saved.uri == view.checkpoint.uri) return;
  view.checkpoint = saved;
  view.checkpoint_time = received;
  view.saves.push_back(saved);
  if (view.saves.size() > kKeptSaves) view.saves.erase(view.saves.begin());
}

// Returns true if it is the first failure after a success.
bool TakeSaveFailed(const protocol::SaveFailed& failed, RendezvousView& view) {
  if (failed.reason.empty() || failed.step <= view.checkpoint.step) return false;
  const bool is_first = !view.save_failed.has_value();
  if (is_first || failed.step > view.save_failed->step) view.save_failed = failed;
  return is_first;
}

}  // namespace

bool TakeFacts(const protocol::Heartbeat& report, WallTime received, RendezvousView& view) {
  TakeSaved(report.checkpoint, received, view);
  if (report.evaluation.step > view.evaluation.step) view.evaluation = report.evaluation;
  const bool is_stored_again = view.save_failed && view.save_failed->step <= view.checkpoint.step;
  if (is_stored_again) view.save_failed.reset();
  bool is_news = TakeSaveFailed(report.save_failed, view) || is_stored_again;
  for (const protocol::Repair& repair : report.repairs)
    is_news = RecordRepair(report.member, repair, view.changes) || is_news;
  for (const protocol::CheckpointDamaged& damaged : report.damaged_checkpoints)
    is_news = protocol::KeepNewest(view.damaged_checkpoints, damaged) || is_news;
  return is_news;
}

WallTime StepTimeOf(const protocol::Heartbeat& report, WallTime received) {
  if (report.progress.step == 0) return {};
  return received - std::chrono::duration_cast<WallTime::duration>(Seconds(report.seconds_since_step));
}

}  // namespace lockstep::rendezvous
