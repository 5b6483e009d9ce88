#include "runtime/train/stopping.h"

#include <algorithm>
#include <vector>

#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

// Seconds of the grace period that are reserved for exiting after a save.
constexpr double kWayOutSeconds = 1;
// While the store is away: the pause between two tries, and the minimum remaining grace period for another
// one.
constexpr Milliseconds kBetweenTries = 1s;
constexpr Milliseconds kWorthATry = 5s;

}  // namespace

void Stopping::Together(const Group& group) {
  if (!context_.saves.on_termination()) return;
  context_.progress.Phase("save");
  while (true) {
    const Result<void> saved = context_.saves.SaveTogether(group, context_.state, GraceForSave(), 1);
    if (saved.ok()) return;
    log::Warning("state not stored before stopping", {{"error", saved.error().message}});
    if (!saved.error().IsTransient() || !AllHaveTime(*group)) return;
    PauseFor(kBetweenTries, {});
  }
}

void Stopping::Alone(const LastPlace& place) {
  if (context_.state.step > 0 && context_.saves.on_termination()) {
    context_.progress.Phase("save");
    SaveAlone(place);
  }
  Drain();  // a periodic save in progress
}

void Stopping::SaveAlone(const LastPlace& place) {
  while (true) {
    const Result<void> saved = context_.saves.SaveAlone(context_.state, place, GraceForSave());
    if (saved.ok()) return;
    log::Warning("state not stored before stopping", {{"error", saved.error().message}});
    if (!saved.error().IsTransient() || GraceForSave() < kWorthATry) return;
    PauseFor(kBetweenTries, {});
  }
}

bool Stopping::AllHaveTime(comm::Communicator& communicator) const {
  const int64_t mine = GraceForSave().count();
  const auto rows = communicator.AllGather({&mine, 1});
  return rows.ok() && std::all_of(rows->begin(), rows->end(),
                                  [](const auto& row) { return Milliseconds(row.at(0)) >= kWorthATry; });
}

Result<bool> Stopping::HandOver(const Group& group, bool leaves, std::chrono::milliseconds limit) {
  // At most half of the grace period, because otherwise this rank could end while it waits for the store,
  // before it has handed its part over.
  if (leaves) limit = GraceForSave() / 2;
  const std::vector<int64_t> mine = {leaves ? 1 : 0, limit.count()};
  LOCKSTEP_TRY(const auto rows, group->AllGather(mine));
  if (std::all_of(rows.begin(), rows.end(), [](const auto& row) { return row.at(0) == 0; })) return false;
  for (const auto& row : rows) limit = std::min(limit, std::chrono::milliseconds(row.at(1)));
  if (context_.saves.on_termination()) LOCKSTEP_TRY(SaveBeforeRanksLeave(group, limit));
  // Some ranks may have been asked to stop meanwhile; they must not receive parts.
  leaves = leaves || context_.control.stop_requested();
  LOCKSTEP_TRY(context_.state.staged != nullptr ? context_.state.staged->HandOver(*group, leaves)
                                                : context_.state.sharded->HandOver(*group, leaves));
  return leaves;
}

bool Stopping::hands_over() const {
  const TrainingState& state = context_.state;
  if (state.step <= 0 || state.step == stored_step_) return false;
  if (state.staged != nullptr) return state.staged->holds_a_part();
  return state.sharded != nullptr && state.sharded->holds_a_part();
}

void Stopping::Drain() { context_.saves.Drain(GraceForSave()); }

std::chrono::milliseconds Stopping::GraceForSave() const {
  const double seconds = std::max(0.0, context_.control.grace_seconds_left() - kWayOutSeconds);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Seconds(seconds));
}

Result<void> Stopping::SaveBeforeRanksLeave(const Group& group, std::chrono::milliseconds limit) {
  context_.progress.Phase("save");
  Result<void> saved = context_.saves.SaveTogether(group, context_.state, limit, 1);
  if (saved.ok()) {
    stored_step_ = context_.state.step;
  } else {
    const ErrorCode code = saved.error().code;
    // The others may not know of an error on this rank alone, so the ranks cannot continue together.
    if (code == ErrorCode::kAborted || code == ErrorCode::kInternal) return saved;
    log::Warning("state not stored before ranks leave", {{"error", saved.error().message}});
  }
  context_.progress.Phase("train");
  return {};
}

}  // namespace lockstep::train
