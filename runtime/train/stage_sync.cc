#include "runtime/train/stage_sync.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <string>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/strings.h"

namespace lockstep::train {
namespace {

using comm::Communicator;

// A state that a rank holds, or a copy of one.
struct Offer {
  StepFacts facts;
  std::vector<bool> layers;
};

// What a rank reports about itself.
struct StageRankState {
  Offer state;
  Version pending;
  std::array<Offer, StageCopies::kMost> copies;

  [[nodiscard]] StageHolder holder() const { return {state.facts.version, pending, state.layers}; }
};

class Numbers {
 public:
  explicit Numbers(std::vector<int64_t> row = {}) : row_(std::move(row)) {}
  void Put(int64_t number) { row_.push_back(number); }
  void Put(double number) { row_.push_back(std::bit_cast<int64_t>(number)); }
  int64_t Take() { return row_.at(next_++); }
  double TakeReal() { return std::bit_cast<double>(Take()); }
  [[nodiscard]] const std::vector<int64_t>& row() const { return row_; }

 private:
  std::vector<int64_t> row_;
  std::size_t next_ = 0;
};

void Put(Numbers& numbers, const Version& version) {
  numbers.Put(version.step);
  numbers.Put(version.round);
}

Version TakeVersion(Numbers& numbers) {
  const int64_t step = numbers.Take();
  return {step, numbers.Take()};
}

void Put(Numbers& numbers, const Offer& offer) {
  const StepFacts& facts = offer.facts;
  Put(numbers, facts.version);
  numbers.Put(facts.evaluations.step);
  numbers.Put(facts.evaluations.newest);
  numbers.Put(facts.evaluations.best);
  numbers.Put(int64_t{facts.evaluations.without_improvement});
  numbers.Put(facts.loss_scale);
  numbers.Put(facts.good_steps);
  for (const double sum : {facts.end.count, facts.end.loss, facts.end.squares}) numbers.Put(sum);
  for (const bool layer : offer.layers) numbers.Put(int64_t{layer ? 1 : 0});
}

Offer TakeOffer(Numbers& numbers, std::size_t layers) {
  Offer offer;
  StepFacts& facts = offer.facts;
  facts.version = TakeVersion(numbers);
  facts.evaluations.step = numbers.Take();
  facts.evaluations.newest = numbers.TakeReal();
  facts.evaluations.best = numbers.TakeReal();
  facts.evaluations.without_improvement = numbers.Take();
  facts.loss_scale = numbers.TakeReal();
  facts.good_steps = numbers.Take();
  for (double* sum : {&facts.end.count, &facts.end.loss, &facts.end.squares}) *sum = numbers.TakeReal();
  for (std::size_t layer = 0; layer < layers; ++layer) offer.layers.push_back(numbers.Take() != 0);
  return offer;
}

std::vector<int64_t> Encode(const TrainingState& state) {
  const StageHolder holder = state.staged->Myself();
  Numbers numbers;
  Put(numbers, holder.pending);
  Put(numbers, {FactsOf(state), holder.layers});
  const auto& kept = state.stage_copies.kept();
  for (std::size_t i = 0; i < StageCopies::kMost; ++i) {
    Put(numbers, i < kept.size() ? Offer{kept[i].facts, kept[i].layers}
                                 : Offer{{}, std::vector<bool>(holder.layers.size(), false)});
  }
  return numbers.row();
}

StageRankState Decode(Numbers numbers, std::size_t layers) {
  StageRankState rank_state;
  rank_state.pending = TakeVersion(numbers);
  rank_state.state = TakeOffer(numbers, layers);
  for (Offer& copy : rank_state.copies) copy = TakeOffer(numbers, layers);
  return rank_state;
}

Result<std::vector<StageRankState>> ExchangeStageRankStates(Communicator& communicator,
                                                            const TrainingState& state) {
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(Encode(state)));
  const std::size_t layers = state.staged->Myself().layers.size();
  std::vector<StageRankState> all;
  all.reserve(rows.size());
  for (const auto& row : rows) all.push_back(Decode(Numbers(row), layers));
  return all;
}

std::vector<StageHolder> HoldersOf(const std::vector<StageRankState>& all) {
  std::vector<StageHolder> holders;
  holders.reserve(all.size());
  for (const StageRankState& rank_state : all) holders.push_back(rank_state.holder());
  return holders;
}

// The copies, each as a separate holder.
std::vector<StageHolder> CopiesOf(const std::vector<StageRankState>& all) {
  std::vector<StageHolder> holders;
  for (const StageRankState& rank_state : all) {
    for (const Offer& copy : rank_state.copies) holders.push_back({copy.facts.version, {}, copy.layers});
  }
  return holders;
}

void LogWhatIsLost(const std::vector<StageHolder>& holders, const std::optional<Version>& whole,
                   const std::optional<Version>& copied) {
  Version newest;
  for (const StageHolder& holder : holders) newest = std::max(newest, holder.version);
  if (newest.step <= 0 || newest == whole) return;
  if (whole.has_value()) {
    return log::Info("some layers of the newest step are lost: continuing from the step before it",
                     {{"newest_step", newest.step}, {"step", whole->step}});
  }
  std::vector<std::string> layers;
  for (const int layer : LayersMissing(holders, newest)) layers.push_back(std::to_string(layer));
  if (copied.has_value()) {
    return log::Warning(
        "layers lost with the ranks that held them: restoring the copies in memory",
        {{"step", newest.step}, {"copied_step", copied->step}, {"layers", Join(layers, ", ")}});
  }
  log::Error(
      "layers lost with the ranks that held them: restoring the newest checkpoint",
      {{"step", newest.step}, {"layers", Join(layers, ", ")}, {"of_layers", holders.front().layers.size()}});
}

// The broken step succeeded on other ranks, and this rank has everything to complete it.
Result<void> CompletePendingStep(TrainingState& state, const StepEnd& end) {
  LOCKSTEP_TRY(const StepVerdict verdict, state.staged->EndStep(end, state.loss_scale.factor()));
  log::Info("the interrupted step was completed", {{"step", state.step}, {"applied", verdict.applied}});
  return {};
}

Result<StateSource> GoOnFrom(const Version& version, TrainingState& state,
                             const std::vector<StageRankState>& all) {
  StagedState& staged = *state.staged;
  const auto first = std::find_if(all.begin(), all.end(), [&](const StageRankState& rank_state) {
    return rank_state.state.facts.version == version;
  });
  const StepFacts& facts = first->state.facts;
  if (staged.version() != version && staged.Myself().pending == version)
    LOCKSTEP_TRY(CompletePendingStep(state, facts.end));
  if (staged.awaits_end()) staged.Undo();
  staged.SetLastEnd(facts.end);
  state.loss_scale.Set(facts.loss_scale, facts.good_steps);
  if (state.evaluations.step > version.step) state.evaluations = {};  // of steps that will be repeated
  for (const StageRankState& rank_state : all) {
    const StepFacts& theirs = rank_state.state.facts;
    if (theirs.version == version && theirs.evaluations.step > state.evaluations.step)
      state.evaluations = theirs.evaluations;
  }
  if (staged.version() == version) return StateSource::kKept;
  staged.Forget();
  return StateSource::kPeer;
}

Result<StateSource> GoBackTo(const Version& version, TrainingState& state,
                             const std::vector<StageRankState>& all) {
  StagedState& staged = *state.staged;
  for (const StageRankState& rank_state : all) {
    for (const Offer& copy : rank_state.copies) {
      if (copy.facts.version != version) continue;
      staged.SetLastEnd(copy.facts.end);
      state.loss_scale.Set(copy.facts.loss_scale, copy.facts.good_steps);
      state.evaluations = copy.facts.evaluations;
    }
  }
  const StageCopy* const mine = state.stage_copies.Find(version);
  if (mine == nullptr) {
    staged.Forget();
    return StateSource::kPeer;
  }
  // Training modifies its tensors, and the copy may be needed again.
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "restoring the copy of a step", [&] {
    std::vector<at::Tensor> tensors;
    tensors.reserve(mine->tensors.size());
    for (const at::Tensor& tensor : mine->tensors)
      tensors.push_back(tensor.defined() ? tensor.clone() : at::Tensor());
    staged.LoadPart(version, mine->layers, tensors);
  }));
  return StateSource::kCopy;
}

// The ranks hold no complete state: all restore, or start afresh.
Result<StateSource> SyncStagesAtStart(Communicator& communicator, TrainingState& state,
                                      const Restore& restore) {
  LOCKSTEP_TRY(const bool restored, restore(state));
  if (!restored) {
    state.step = 0;
    LOCKSTEP_TRY(state.staged->StartAfresh());
    state.loss_scale = LossScale(state.staged->spec().precision, state.staged->spec().global_batch_size);
    state.evaluations = {};
    return StateSource::kFresh;
  }
  LOCKSTEP_TRY(const auto all, ExchangeStageRankStates(communicator, state));
  const StepFacts& facts = all.front().state.facts;
  state.loss_scale.Set(facts.loss_scale, facts.good_steps);
  state.evaluations = facts.evaluations;
  return StateSource::kCheckpoint;
}

}  // namespace

StepFacts FactsOf(const TrainingState& state) {
  return {state.staged->version(), state.evaluations, state.loss_scale.factor(),
          state.loss_scale.good_steps(), state.staged->last_end()};
}

Result<StateSource> SyncStages(Communicator& communicator, TrainingState& state, const Restore& restore) {
  StagedState& staged = *state.staged;
  LOCKSTEP_TRY(const std::vector<StageRankState> all, ExchangeStageRankStates(communicator, state));
  const std::vector<StageHolder> holders = HoldersOf(all);
  std::optional<Version> whole = NewestHeldWhole(holders);
  const std::optional<Version> copied = NewestHeldWhole(CopiesOf(all));
  if (copied > whole) whole.reset();
  LogWhatIsLost(holders, whole, copied);
  StateSource source = StateSource::kKept;
  Version version;
  if (whole.has_value()) {
    version = *whole;
    LOCKSTEP_TRY(source, GoOnFrom(version, state, all));
  } else if (copied.has_value()) {
    version = *copied;
    LOCKSTEP_TRY(source, GoBackTo(version, state, all));
  } else {
    LOCKSTEP_TRY(source, SyncStagesAtStart(communicator, state, restore));
    version = {state.step, -1};
  }
  state.step = version.step;
  LOCKSTEP_TRY(staged.Redistribute(communicator, version));
  return source;
}

}  // namespace lockstep::train
