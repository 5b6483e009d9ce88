#include "runtime/train/loop/stopping.h"

#include <algorithm>
#include <map>
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
// For a save before ranks leave. The ranks that stay wait for it.
constexpr std::chrono::milliseconds kHandOverLimit = 600s;

}  // namespace

void Stopping::Together(const Group& group) {
  if (context_.saves.on_termination()) SaveWhileAllHaveTime(group);
  if (group->rank() == 0) context_.saves.EndOwnership();
}

void Stopping::SaveWhileAllHaveTime(const Group& group) {
  context_.progress.Phase(protocol::RankPhase::kSave);
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
    context_.progress.Phase(protocol::RankPhase::kSave);
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

Result<bool> Stopping::HandOver(const Group& group, int first_rank_of_pod) {
  LOCKSTEP_TRY(Leaving leaving, AgreeWhoLeaves(*group, first_rank_of_pod));
  const auto is_any = [&leaving](bool staying) {
    return std::find(leaving.stays.begin(), leaving.stays.end(), staying) != leaving.stays.end();
  };
  if (!is_any(false)) return false;
  // At most half of the grace period, because otherwise a rank could end while it waits for the store, before
  // it has handed its part over.
  if (is_any(true) && context_.saves.on_termination())
    LOCKSTEP_TRY(SaveBeforeRanksLeave(group, std::min(kHandOverLimit, leaving.grace / 2)));
  // Some ranks may have been asked to stop meanwhile; they must not receive parts.
  LOCKSTEP_TRY(leaving, AgreeWhoLeaves(*group, first_rank_of_pod));
  if (!is_any(true)) {
    Together(group);
    return true;
  }
  LOCKSTEP_TRY(context_.state.HandOver(*group, leaving.stays));
  return !leaving.stays.at(static_cast<std::size_t>(group->rank()));
}

Result<Stopping::Leaving> Stopping::AgreeWhoLeaves(comm::Communicator& communicator, int first_rank_of_pod) {
  const bool is_asked = context_.control.stop_requested();
  const std::vector<int64_t> mine = {first_rank_of_pod, is_asked ? GraceForSave().count() : -1};
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine));
  std::map<int64_t, int64_t> grace_of_pods;  // of those that leave
  Leaving leaving{.stays = {}, .grace = std::chrono::milliseconds::max()};
  for (const auto& row : rows) {
    if (row.at(1) < 0) continue;
    grace_of_pods[row.at(0)] = row.at(1);
    leaving.grace = std::min(leaving.grace, std::chrono::milliseconds(row.at(1)));
  }
  for (const auto& row : rows) leaving.stays.push_back(!grace_of_pods.contains(row.at(0)));
  const auto of_pod = grace_of_pods.find(first_rank_of_pod);
  if (!is_asked && of_pod != grace_of_pods.end())
    context_.control.OnMessage(protocol::Stop{Seconds(std::chrono::milliseconds(of_pod->second)).count()});
  return leaving;
}

bool Stopping::hands_over() const {
  const TrainingState& state = context_.state;
  return state.step > 0 && state.step != stored_step_ && state.holds_a_part();
}

void Stopping::Drain() { context_.saves.Drain(GraceForSave()); }

std::chrono::milliseconds Stopping::GraceForSave() const {
  const double seconds = std::max(0.0, context_.control.grace_seconds_left() - kWayOutSeconds);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Seconds(seconds));
}

Result<void> Stopping::SaveBeforeRanksLeave(const Group& group, std::chrono::milliseconds limit) {
  context_.progress.Phase(protocol::RankPhase::kSave);
  Result<void> saved = context_.saves.SaveTogether(group, context_.state, limit, 1);
  if (saved.ok()) {
    stored_step_ = context_.state.step;
  } else {
    const ErrorCode code = saved.error().code;
    // The others may not know of an error on this rank alone, so the ranks cannot continue together.
    if (code == ErrorCode::kAborted || code == ErrorCode::kInternal) return saved;
    log::Warning("state not stored before ranks leave", {{"error", saved.error().message}});
  }
  context_.progress.Phase(protocol::RankPhase::kTrain);
  return {};
}

}  // namespace lockstep::train
