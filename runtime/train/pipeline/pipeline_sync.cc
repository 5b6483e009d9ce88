#include "runtime/train/pipeline/pipeline_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
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

void Put(Numbers& numbers, const Offer& offer) {
  numbers.Put(offer.facts);
  for (const bool layer : offer.layers) numbers.Put(int64_t{layer ? 1 : 0});
}

Offer TakeOffer(Numbers& numbers, std::size_t layers) {
  Offer offer{numbers.TakeFacts(), {}};
  for (std::size_t layer = 0; layer < layers; ++layer) offer.layers.push_back(numbers.Take() != 0);
  return offer;
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

}  // namespace

// What a rank reports about itself.
struct PipelineState::RankState {
  Offer state;
  Version pending;
  std::array<Offer, StageCopies::kMost> copies;
};

std::vector<int64_t> PipelineState::Encode() const {
  const StageHolder holder = stages_->Myself();
  Numbers numbers;
  numbers.Put(holder.pending);
  Put(numbers, {Facts(), holder.layers});
  const auto& kept = copies_.kept();
  for (std::size_t i = 0; i < StageCopies::kMost; ++i) {
    Put(numbers, i < kept.size() ? Offer{kept[i].facts, kept[i].layers}
                                 : Offer{{}, std::vector<bool>(holder.layers.size(), false)});
  }
  return numbers.row();
}

Result<std::vector<PipelineState::RankState>> PipelineState::ExchangeRankStates(
    Communicator& communicator) const {
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(Encode()));
  const std::size_t layers = stages_->Myself().layers.size();
  std::vector<RankState> all;
  all.reserve(rows.size());
  for (const auto& row : rows) {
    Numbers numbers(row);
    RankState& rank_state = all.emplace_back();
    rank_state.pending = numbers.TakeVersion();
    rank_state.state = TakeOffer(numbers, layers);
    for (Offer& copy : rank_state.copies) copy = TakeOffer(numbers, layers);
  }
  return all;
}

Result<void> PipelineState::CompletePendingStep(const StepEnd& end) {
  LOCKSTEP_TRY(const StepVerdict verdict, stages_->EndStep(end, loss_scale.factor()));
  log::Info("the interrupted step was completed", {{"step", step}, {"applied", verdict.applied}});
  return {};
}

Result<StateSource> PipelineState::GoOnFrom(const Version& version, const std::vector<RankState>& all) {
  const auto first = std::find_if(all.begin(), all.end(), [&](const RankState& rank_state) {
    return rank_state.state.facts.version == version;
  });
  const StepFacts& facts = first->state.facts;
  if (stages_->version() != version && stages_->Myself().pending == version)
    LOCKSTEP_TRY(CompletePendingStep(facts.end));
  if (stages_->awaits_end()) stages_->Undo();
  stages_->SetLastEnd(facts.end);
  loss_scale.Set(facts.loss_scale, facts.good_steps);
  if (evaluations.step > version.step) evaluations = {};  // of steps that will be repeated
  for (const RankState& rank_state : all) {
    const StepFacts& theirs = rank_state.state.facts;
    if (theirs.version == version && theirs.evaluations.step > evaluations.step)
      evaluations = theirs.evaluations;
  }
  if (stages_->version() == version) return StateSource::kKept;
  stages_->Forget();
  return StateSource::kPeer;
}

Result<StateSource> PipelineState::GoBackTo(const Version& version, const std::vector<RankState>& all) {
  for (const RankState& rank_state : all) {
    for (const Offer& copy : rank_state.copies) {
      if (copy.facts.version != version) continue;
      stages_->SetLastEnd(copy.facts.end);
      loss_scale.Set(copy.facts.loss_scale, copy.facts.good_steps);
      evaluations = copy.facts.evaluations;
    }
  }
  const StageCopy* const mine = copies_.Find(version);
  if (mine == nullptr) {
    stages_->Forget();
    return StateSource::kPeer;
  }
  // Training modifies its tensors, and the copy may be needed again.
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "restoring the copy of a step", [&] {
    std::vector<at::Tensor> tensors;
    tensors.reserve(mine->tensors.size());
    for (const at::Tensor& tensor : mine->tensors)
      tensors.push_back(tensor.defined() ? tensor.clone() : at::Tensor());
    stages_->LoadPart(version, mine->layers, tensors);
  }));
  return StateSource::kCopy;
}

Result<StateSource> PipelineState::SyncAtStart(Communicator& communicator, const Restore& restore) {
  LOCKSTEP_TRY(const bool restored, restore(*this));
  if (!restored) {
    LOCKSTEP_TRY(StartAfresh());
    LOCKSTEP_TRY(stages_->StartAfresh());
    loss_scale = LossScale(spec().precision, spec().global_batch_size);
    return StateSource::kFresh;
  }
  LOCKSTEP_TRY(const auto all, ExchangeRankStates(communicator));
  const StepFacts& facts = all.front().state.facts;
  loss_scale.Set(facts.loss_scale, facts.good_steps);
  evaluations = facts.evaluations;
  return StateSource::kCheckpoint;
}

StepFacts PipelineState::Facts() const {
  return {stages_->version(), evaluations, loss_scale.factor(), loss_scale.good_steps(), stages_->last_end()};
}

Result<StateSource> PipelineState::Sync(Communicator& communicator, const Restore& restore) {
  LOCKSTEP_TRY(const std::vector<RankState> all, ExchangeRankStates(communicator));
  std::vector<StageHolder> holders;
  std::vector<StageHolder> copies;  // each as a separate holder
  for (const RankState& rank_state : all) {
    const Offer& state = rank_state.state;
    holders.push_back({state.facts.version, rank_state.pending, state.layers});
    for (const Offer& copy : rank_state.copies) copies.push_back({copy.facts.version, {}, copy.layers});
  }
  std::optional<Version> whole = NewestHeldWhole(holders);
  const std::optional<Version> copied = NewestHeldWhole(copies);
  if (copied > whole) whole.reset();
  LogWhatIsLost(holders, whole, copied);
  StateSource source = StateSource::kKept;
  Version version;
  if (whole.has_value()) {
    version = *whole;
    LOCKSTEP_TRY(source, GoOnFrom(version, all));
  } else if (copied.has_value()) {
    version = *copied;
    LOCKSTEP_TRY(source, GoBackTo(version, all));
  } else {
    LOCKSTEP_TRY(source, SyncAtStart(communicator, restore));
    version = {step, -1};
  }
  step = version.step;
  LOCKSTEP_TRY(stages_->Redistribute(communicator, version));
  return source;
}

}  // namespace lockstep::train
