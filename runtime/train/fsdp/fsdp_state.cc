#include "runtime/train/fsdp/fsdp_state.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/checkpoint/save.h"
#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/train/fsdp/fsdp_stepper.h"
#include "runtime/train/fsdp/layer_pass.h"
#include "runtime/train/state/broadcast.h"
#include "runtime/train/state/part_to_load.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

std::vector<FromRank> FromOne(int root, const std::vector<NamedTensor>& tensors) {
  std::vector<FromRank> all;
  all.reserve(tensors.size());
  for (const NamedTensor& named : tensors) all.push_back({named.tensor, root, named.tensor});
  return all;
}

// The range of the elements that the rank reads.
class FsdpPart final : public PartToLoad {
 public:
  FsdpPart(FsdpState& state, const LoadRequest& request)
      : PartToLoad(state, request, /*may_write_in_place=*/true), layers_(state.layers()) {
    range_ = layers_.PartOf(request.rank, request.world);
    const auto pieces = layers_.PiecesOf(range_);
    const auto& described = layers_.described();
    for (std::size_t first = 0; first < described.size(); first += layers_.parameters()) {
      const at::Tensor& slot = slots_.emplace_back(at::zeros({range_.size()}));
      int64_t begin = 0;
      for (const auto& [parameter, piece] : pieces) {
        const std::string& name = described[first + parameter].name;
        if (IsTaken(name)) Want(name, slot.narrow(0, begin, piece.size()), piece.begin);
        begin += piece.size();
      }
    }
  }

 private:
  Result<void> TakeDivided(int64_t step) override {
    layers_.Load(step, range_, std::move(slots_));
    return {};
  }

  ShardedLayers& layers_;
  Range range_;
  std::vector<at::Tensor> slots_;
};

// What a rank says before a batch of an evaluation.
enum Turn : int64_t { kHasNone, kHasBatch, kLeaves };

}  // namespace

struct FsdpState::RankState {
  StepFacts facts;
  Version pending;

  [[nodiscard]] bool Has(const Version& version) const {
    return facts.version == version || pending == version;
  }
};

Result<void> FsdpState::Build() {
  LOCKSTEP_TRY(std::shared_ptr<Model> made, FreshModel());
  TakeModel(std::move(made));
  LOCKSTEP_TRY(layers_, ShardedLayers::Make(spec(), model, device, {spec().fsdp.copies, ranks_in_pod_}));
  return CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [this] {
    const at::NoGradGuard no_grad;
    for (const NamedTensor& parameter : parameters) {
      if (!parameter.tensor.requires_grad()) whole_.push_back(parameter);
    }
    whole_.insert(whole_.end(), buffers.begin(), buffers.end());
    for (NamedTensor& named : whole_) named.tensor.set_data(named.tensor.to(device));
  });
}

StateMemory FsdpState::Memory(int world) const {
  StateMemory memory = layers_->Memory(world);
  memory.parameters += BytesOf(whole_);
  memory.undo = BytesOf(buffers);
  return memory;
}

std::vector<NamedTensor> FsdpState::With(std::vector<NamedTensor> divided) const {
  divided.insert(divided.end(), whole_.begin(), whole_.end());
  divided.insert(divided.end(), loss_scale.state().begin(), loss_scale.state().end());
  return divided;
}

StepFacts FsdpState::Facts() const {
  return {layers_->version(), evaluations, loss_scale.factor(), loss_scale.good_steps(), last_end_};
}

Result<std::vector<FsdpState::RankState>> FsdpState::ExchangeRankStates(Communicator& communicator) const {
  Numbers mine;
  mine.Put(Facts());
  mine.Put(layers_->pending());
  LOCKSTEP_TRY(const auto rows, communicator.AllGather(mine.row()));
  std::vector<RankState> all;
  all.reserve(rows.size());
  for (const auto& row : rows) {
    Numbers numbers(row);
    RankState& rank_state = all.emplace_back();
    rank_state.facts = numbers.TakeFacts();
    rank_state.pending = numbers.TakeVersion();
  }
  return all;
}

Result<StateSource> FsdpState::Sync(Communicator& communicator, const Restore& restore) {
  LOCKSTEP_TRY(const std::optional<Version> whole, layers_->Agree(communicator));
  StateSource source = StateSource::kKept;
  if (whole.has_value()) {
    LOCKSTEP_TRY(source, GoOnFrom(*whole, communicator));
  } else {
    LOCKSTEP_TRY(source, SyncAtStart(communicator, restore));
  }
  LOCKSTEP_TRY(
      layers_->Redistribute(communicator, whole.value_or(Version{step, communicator.place().round})));
  layers_->DropInitial();
  return source;
}

Result<StateSource> FsdpState::GoOnFrom(const Version& version, Communicator& communicator) {
  LOCKSTEP_TRY(const std::vector<RankState> all, ExchangeRankStates(communicator));
  const auto first = std::find_if(all.begin(), all.end(), [&](const RankState& rank_state) {
    return rank_state.facts.version == version;
  });
  const StepFacts& facts = first->facts;
  // The broken step succeeded on other ranks, and this rank has everything to complete it.
  if (layers_->version() != version && layers_->pending() == version) {
    LOCKSTEP_TRY(const StepVerdict verdict, EndStep(facts.end));
    log::Info("the interrupted step was completed",
              {{"step", facts.version.step}, {"applied", verdict.applied}});
  }
  if (layers_->pending().step >= 0) LOCKSTEP_TRY(UndoStep());
  const bool is_level = layers_->version() == version;
  const bool all_are = std::all_of(all.begin(), all.end(),
                                   [&](const RankState& rank_state) { return rank_state.Has(version); });
  if (!all_are) {
    const auto root = static_cast<int>(first - all.begin());
    LOCKSTEP_TRY(BroadcastTensors(communicator, FromOne(root, Replicated()),
                                  is_level ? Receiving::kScratch : Receiving::kInPlace, [this] { Tear(); }));
  }
  loss_scale.Set(facts.loss_scale, facts.good_steps);
  last_end_ = facts.end;
  if (evaluations.step > version.step) evaluations = {};  // of steps that will be repeated
  for (const RankState& rank_state : all) {
    const StepFacts& theirs = rank_state.facts;
    if (theirs.version == version && theirs.evaluations.step > evaluations.step)
      evaluations = theirs.evaluations;
  }
  Complete(version.step);
  return is_level ? StateSource::kKept : StateSource::kPeer;
}

Result<StateSource> FsdpState::SyncAtStart(Communicator& communicator, const Restore& restore) {
  LOCKSTEP_TRY(const bool restored, restore(*this));
  layers_->Undo();
  if (restored) {
    LOCKSTEP_TRY(const auto all, ExchangeRankStates(communicator));
    evaluations = all.front().facts.evaluations;
    return StateSource::kCheckpoint;
  }
  LOCKSTEP_TRY(TakeFresh(communicator));
  return StateSource::kFresh;
}

Result<void> FsdpState::TakeFresh(const Communicator& communicator) {
  std::shared_ptr<Model> fresh;
  if (!layers_->has_initial() || step > 0 || is_torn) {
    LOCKSTEP_TRY(fresh, FreshModelAgain());
  }
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "starting afresh", [&] {
    const at::NoGradGuard no_grad;
    layers_->LoadFresh(communicator.rank(), communicator.world(), fresh.get());
    if (fresh == nullptr) return;
    const auto fresh_parameters = fresh->named_parameters();
    const auto fresh_buffers = fresh->named_buffers();
    for (const NamedTensor& named : whole_) {
      const at::Tensor* const parameter = fresh_parameters.find(named.name);
      named.tensor.copy_(parameter != nullptr ? *parameter : fresh_buffers[named.name]);
    }
    loss_scale = LossScale(spec().precision, spec().global_batch_size);
  }));
  evaluations = {};
  Complete(0);
  return {};
}

Result<void> FsdpState::SyncBuffers(Communicator& communicator) {
  if (buffers.empty() || communicator.world() == 1) return {};
  // Buffers are small, and those of one step must stay consistent.
  const Receiving receiving = communicator.rank() == 0 ? Receiving::kScratch : Receiving::kStaged;
  return BroadcastTensors(communicator, FromOne(0, buffers), receiving);
}

Result<void> FsdpState::StartAfresh() {
  Tear();
  return {};
}

std::unique_ptr<Stepper> FsdpState::MakeStepper(const StepContext& context) {
  return std::make_unique<FsdpStepper>(context, *this);
}

Result<PartToSave> FsdpState::Save(Communicator& communicator) {
  const std::vector<int> writers = checkpoint::DivideTensors(Tensors(), communicator.world());
  const auto count = static_cast<std::ptrdiff_t>(layers_->described().size());
  LOCKSTEP_TRY(std::vector<NamedTensor> divided,
               layers_->Collect(communicator, {writers.begin(), writers.begin() + count}));
  return PartToSave{.tensors = With(std::move(divided))};
}

Result<std::vector<NamedTensor>> FsdpState::Whole() const {
  LOCKSTEP_TRY(std::vector<NamedTensor> divided, layers_->Whole());
  return With(std::move(divided));
}

std::unique_ptr<PartToLoad> FsdpState::Load(const LoadRequest& request) {
  return std::make_unique<FsdpPart>(*this, request);
}

// All ranks evaluate as many batches as the rank with the most, because each needs the layers of all.
PartToEvaluate FsdpState::PartOfEvaluation(int64_t samples, int rank, std::span<const double> speeds) const {
  PartToEvaluate part = TrainingState::PartOfEvaluation(samples, rank, speeds);
  int64_t most = 0;
  for (const Slice& share : SlicesBySpeed(samples, speeds)) most = std::max(most, share.size());
  const int64_t size = spec().evaluation->batch_size;
  part.turns = (most + size - 1) / size;
  return part;
}

Result<at::Tensor> FsdpState::Evaluate(Communicator& communicator, const at::Tensor& inputs) {
  Turn turn = kLeaves;
  if (inputs.defined()) turn = inputs.size(0) > 0 ? kHasBatch : kHasNone;
  const int64_t mine = turn;
  LOCKSTEP_TRY(const auto rows, communicator.AllGather({&mine, 1}));
  const int64_t most = std::max_element(rows.begin(), rows.end())->front();
  if (most == kLeaves) return at::Tensor();
  if (most == kHasNone) return inputs;
  LayerPass pass(*layers_, communicator);
  LOCKSTEP_TRY(const at::Tensor outputs,
               pass.Forward(turn == kHasBatch ? inputs : at::Tensor(), /*with_gradients=*/false));
  return turn == kHasBatch ? outputs : inputs;
}

Result<std::vector<WeightAndAverage>> FsdpState::Averages(Communicator& /*communicator*/) const {
  return CatchTorch(ErrorCode::kInternal, "averages", [this] { return layers_->Averages(); });
}

void FsdpState::Tear() {
  TrainingState::Tear();
  layers_->ForgetVersion();
}

Result<void> FsdpState::BeginStep() {
  return CatchTorch(ErrorCode::kInternal, "preparing the step", [this] {
    const at::NoGradGuard no_grad;
    layers_->BeginStep();
    buffers_before_.clear();
    for (const NamedTensor& buffer : buffers) buffers_before_.push_back(buffer.tensor.clone());
  });
}

Result<StepVerdict> FsdpState::EndStep(const StepEnd& end) {
  LOCKSTEP_TRY(const StepVerdict verdict, layers_->EndStep(end, loss_scale.factor()));
  if (!verdict.applied) LOCKSTEP_TRY(UndoStep());
  last_end_ = end;
  return verdict;
}

Result<void> FsdpState::UndoStep() {
  layers_->Undo();
  return CatchTorch(ErrorCode::kInternal, "undoing the step", [this] {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers_before_.size(); ++i) buffers[i].tensor.copy_(buffers_before_[i]);
  });
}

}  // namespace lockstep::train
