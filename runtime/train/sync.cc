#include "runtime/train/sync.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"
#include "runtime/train/broadcast.h"
#include "runtime/train/stage_sync.h"

namespace lockstep::train {
namespace {

using comm::Communicator;

// What a rank reports about itself.
struct RankState {
  int64_t step = -1;
  int64_t digest = 0;
  int64_t host = 0;  // hash of its address
  EvaluationRecord evaluations;

  [[nodiscard]] bool IsLevelWith(const RankState& other) const {
    return step == other.step && digest == other.digest;
  }
};

int64_t HostOf(const Communicator& communicator) {
  return std::bit_cast<int64_t>(std::stoull(StableHash(communicator.place().address), nullptr, 16));
}

// `step` is the step whose state this rank offers to the others; -1: none.
Result<std::vector<RankState>> ExchangeRankStates(Communicator& communicator, const TrainingState& state,
                                                  int64_t step) {
  const EvaluationRecord& record = state.evaluations;
  const std::vector<int64_t> mine = {step,
                                     state.Digest(),
                                     HostOf(communicator),
                                     record.step,
                                     std::bit_cast<int64_t>(record.newest),
                                     std::bit_cast<int64_t>(record.best),
                                     record.without_improvement};
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine));
  std::vector<RankState> all;
  all.reserve(rows.size());
  for (const auto& row : rows) {
    all.push_back(
        {row.at(0),
         row.at(1),
         row.at(2),
         {row.at(3), std::bit_cast<double>(row.at(4)), std::bit_cast<double>(row.at(5)), row.at(6)}});
  }
  return all;
}

int RankOfHighest(const std::vector<RankState>& all) {
  const auto highest = std::max_element(
      all.begin(), all.end(), [](const RankState& a, const RankState& b) { return a.step < b.step; });
  return static_cast<int>(highest - all.begin());
}

bool AllHoldTheSame(const std::vector<RankState>& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const RankState& each) { return each.IsLevelWith(all.front()); });
}

std::vector<FromRank> From(int root, const std::vector<NamedTensor>& tensors) {
  std::vector<FromRank> all;
  all.reserve(tensors.size());
  for (const NamedTensor& named : tensors) all.push_back({named.tensor, root, named.tensor});
  return all;
}

// The ranks hold no complete state: all restore, or start afresh.
Result<StateSource> SyncAtStart(Communicator& communicator, TrainingState& state, const Restore& restore,
                                std::vector<RankState>& all) {
  LOCKSTEP_TRY(const bool restored, restore(state));
  if (!restored) state.Complete(0);
  LOCKSTEP_TRY(all, ExchangeRankStates(communicator, state, state.step));
  return restored ? StateSource::kCheckpoint : StateSource::kFresh;
}

bool IsHeldOnTwoHosts(const std::vector<RankState>& all, const RankState& best) {
  return std::any_of(all.begin(), all.end(),
                     [&](const RankState& each) { return each.IsLevelWith(best) && each.host != best.host; });
}

// The rules are in sync.h.
Receiving HowToReceive(const TrainingState& state, const std::vector<RankState>& all, int rank,
                       const RankState& best) {
  if (all.at(static_cast<std::size_t>(rank)).IsLevelWith(best)) return Receiving::kScratch;
  return state.step < 0 || IsHeldOnTwoHosts(all, best) ? Receiving::kInPlace : Receiving::kStaged;
}

// Takes the evaluations that belong to the state. All ranks must have the same ones, because their next
// decisions depend on them.
void TakeEvaluations(StateSource source, const std::vector<RankState>& all, int64_t step,
                     EvaluationRecord& mine) {
  const bool began = source == StateSource::kFresh || source == StateSource::kCheckpoint;
  if (began) {
    mine = all.front().evaluations;
    return;
  }
  if (mine.step > step) mine = {};  // of steps that will be repeated
  for (const RankState& rank_state : all) {
    if (rank_state.step == step && rank_state.evaluations.step > mine.step) mine = rank_state.evaluations;
  }
}

}  // namespace

std::string_view NameOf(StateSource source) {
  switch (source) {
    case StateSource::kKept: return "kept";
    case StateSource::kPeer: return "peer";
    case StateSource::kCopy: return "copy";
    case StateSource::kCheckpoint: return "checkpoint";
    case StateSource::kFresh: return "fresh";
  }
  return "";
}

Result<StateSource> SyncState(Communicator& communicator, TrainingState& state, const Restore& restore) {
  if (state.staged != nullptr) return SyncStages(communicator, state, restore);
  int64_t offered = state.step;
  std::optional<Version> whole;
  if (state.sharded != nullptr) {
    LOCKSTEP_TRY(whole, state.sharded->Agree(communicator));
    if (whole != state.sharded->version()) offered = -1;
  }
  LOCKSTEP_TRY(std::vector<RankState> all, ExchangeRankStates(communicator, state, offered));
  StateSource source = StateSource::kKept;
  if (all.at(static_cast<std::size_t>(RankOfHighest(all))).step < 0) {
    LOCKSTEP_TRY(source, SyncAtStart(communicator, state, restore, all));
  }
  const int root = RankOfHighest(all);
  const RankState& best = all.at(static_cast<std::size_t>(root));
  if (!AllHoldTheSame(all)) {
    const RankState& mine = all.at(static_cast<std::size_t>(communicator.rank()));
    const bool diverged = best.step == mine.step && best.digest != mine.digest;
    if (diverged) log::Warning("state differs at the same step; taking the peer's", {{"step", state.step}});
    const Receiving receiving = HowToReceive(state, all, communicator.rank(), best);
    LOCKSTEP_TRY(
        BroadcastTensors(communicator, From(root, state.Replicated()), receiving, [&] { state.Tear(); }));
    if (source == StateSource::kKept && receiving != Receiving::kScratch) source = StateSource::kPeer;
  }
  state.Complete(best.step);
  TakeEvaluations(source, all, best.step, state.evaluations);
  if (state.sharded != nullptr) {
    const Version restored{best.step, communicator.place().round};
    LOCKSTEP_TRY(state.sharded->Redistribute(communicator, whole.value_or(restored)));
  }
  return source;
}

Result<void> SyncBuffers(Communicator& communicator, TrainingState& state) {
  if (state.buffers.empty() || communicator.world() == 1) return {};
  if (state.staged != nullptr) return state.staged->SyncBuffers(communicator);
  // Buffers are small, and those of one step must stay consistent.
  const Receiving receiving = communicator.rank() == 0 ? Receiving::kScratch : Receiving::kStaged;
  return BroadcastTensors(communicator, From(0, state.buffers), receiving);
}

}  // namespace lockstep::train
