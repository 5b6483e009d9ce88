// The ends of rounds, and what the next steps show of them: how long the training stood still, and which steps were lost.

#include <algorithm>
#include <cstdint>

#include "runtime/common/rendezvous/job_entry.h"
#include "runtime/common/rendezvous/round_changes.h"

namespace lockstep::rendezvous {

Ending JobEntry::EndingOfFormation() const {
  Ending ending = round_.last_ending().value();
  ending.round = std::max(ending.round, repaired_to_);
  return ending;
}

// A survivor of a broken round may have completed steps that no heartbeat reported.
void JobEntry::TakeHeldStep(int64_t step) {
  const auto& ending = round_.last_ending();
  if (step <= view_.progress.step || !ending.has_value() || ending->round != view_.progress.round) return;
  const auto ended = unrecovered_.find(EndingOfFormation().round);
  if (ended == unrecovered_.end()) return;
  view_.progress.step = step;
  view_.progress.steps_under_way = 0;
  view_.best_step = std::max(view_.best_step, step);
  view_.last_progress_time = view_.step_time = ended->second.wall;
}

void JobEntry::RecordChanges(Moment now) {
  if (!round_.last_ending().has_value()) return;
  const Ending ending = EndingOfFormation();
  const bool is_new = view_.changes.empty() || view_.changes.back().round != ending.round;
  if (is_new) unrecovered_[ending.round] = now;
  RecordEnding(ending, view_.changes);
  unrecovered_.erase(unrecovered_.begin(), unrecovered_.lower_bound(view_.changes.front().round));
  if (is_new) view_.changes.back().ended = now.wall;
  const auto& running = round_.running();
  if (!running.has_value() || running->number == recorded_round_) return;
  recorded_round_ = running->number;
  const bool is_full = static_cast<int>(running->peers.size()) >= round_.places();
  RecordClosing(ending, *running, is_full, view_.changes);
  const auto ended = unrecovered_.find(ending.round);
  // Of a program that reports no steps it is not known what was lost.
  const bool made_steps = view_.progress.round == round_.last_ending()->round && view_.progress.step > 0;
  if (!made_steps || ended == unrecovered_.end() || ending.mode == protocol::LeaveMode::kYield) return;
  view_.changes.back().unfinished_seconds =
      std::max(0.0, Seconds(ended->second.wall - view_.last_progress_time).count());
}

void JobEntry::RecordRecovery(const protocol::Progress& progress, Moment now) {
  for (RoundChange& change : view_.changes) {
    const auto ended = unrecovered_.find(change.round);
    if (ended == unrecovered_.end()) continue;
    change.recovery_seconds = Seconds(now.steady - ended->second.steady).count();
    change.recovered_in = progress.round;
  }
  unrecovered_.clear();
  const bool reports_steps = view_.progress.step > 0 || progress.step > 0;
  // The steps of an incomplete window are lost with it.
  const int64_t reached = view_.progress.step + view_.progress.steps_under_way;
  const int64_t first = progress.step + progress.steps_under_way;
  view_.changes.back().lost_steps = reports_steps ? std::max<int64_t>(0, reached - first + 1) : 0;
}

}  // namespace lockstep::rendezvous
