#include "runtime/train/pipeline/pipeline_state.h"

#include <ATen/ATen.h>

#include "runtime/comm/torch_error.h"
#include "runtime/train/pipeline/pipeline_stepper.h"
#include "runtime/train/state/part_to_load.h"

namespace lockstep::train {
namespace {

// The layers that the rank reads.
class PipelinePart final : public PartToLoad {
 public:
  PipelinePart(PipelineState& state, const LoadRequest& request)
      : PartToLoad(state, request, /*may_write_in_place=*/false),
        stages_(state.stages()),
        layers_(stages_.LayersToRead(request.rank, request.world)) {
    const std::vector<bool> reads = stages_.AreOf(layers_);
    const std::vector<NamedTensor> all = stages_.tensors();
    for (std::size_t i = 0; i < all.size(); ++i)
      tensors_.push_back(reads[i] ? RoomOrZeros(all[i]) : at::Tensor());
  }

 private:
  at::Tensor RoomOrZeros(const NamedTensor& named) {
    if (IsTaken(named.name)) return RoomFor(named);
    return only_weights() ? at::Tensor() : at::zeros(named.tensor.sizes(), named.tensor.options());
  }

  Result<void> TakeDivided(int64_t step) override {
    stages_.Load(step, layers_, tensors_);
    return {};
  }

  StagedState& stages_;
  const std::vector<bool> layers_;
  std::vector<at::Tensor> tensors_;
};

}  // namespace

Result<void> PipelineState::Build() {
  LOCKSTEP_TRY(std::shared_ptr<Model> made, FreshModel());
  TakeModel(std::move(made));
  LOCKSTEP_TRY(stages_, StagedState::Make(spec(), input, model, device));
  return {};
}

StateMemory PipelineState::Memory(int world) const {
  StateMemory memory = stages_->Memory(world);
  // Two stages, and twice as much while copies are made (stage_copies.h).
  if (spec().pipeline.copy_every_steps > 0) memory.host = 4 * (memory.parameters + memory.optimizer);
  return memory;
}

std::vector<NamedTensor> PipelineState::Tensors() const {
  std::vector<NamedTensor> all = stages_->tensors();
  all.insert(all.end(), loss_scale.state().begin(), loss_scale.state().end());
  return all;
}

Result<void> PipelineState::SyncBuffers(comm::Communicator& communicator) {
  if (buffers.empty() || communicator.world() == 1) return {};
  return stages_->SyncBuffers(communicator);
}

Result<void> PipelineState::StartAfresh() {
  step = 0;
  evaluations = {};
  return {};
}

std::unique_ptr<Stepper> PipelineState::MakeStepper(const StepContext& context) {
  return std::make_unique<PipelineStepper>(context, *this);
}

Result<PartToSave> PipelineState::Save(comm::Communicator& communicator) {
  PartToSave part{.tensors = Tensors(), .writers = stages_->Writers(communicator.world())};
  part.writers.resize(part.tensors.size(), 0);
  return part;
}

Result<std::vector<NamedTensor>> PipelineState::Whole() const {
  if (stages_->holds_all()) return Tensors();
  return Error{ErrorCode::kNotFound, "this rank holds the layers of its stage only"};
}

std::unique_ptr<PartToLoad> PipelineState::Load(const LoadRequest& request) {
  return std::make_unique<PipelinePart>(*this, request);
}

bool PipelineState::CopyIsDue(bool is_saved) const {
  const int64_t every = spec().pipeline.copy_every_steps;
  return every > 0 && (is_saved || step % every == 0);
}

Result<void> PipelineState::Copy(comm::Communicator& communicator) {
  return copies_.Take(communicator, *stages_, Facts(), ranks_in_pod_);
}

PartToEvaluate PipelineState::PartOfEvaluation(int64_t samples, int /*rank*/,
                                               std::span<const double> /*speeds*/) const {
  if (!stages_->coordinate().has_value())
    return {.samples = {}, .reads = false, .decides = false, .scores = false};
  const auto [pipeline, stage] = *stages_->coordinate();
  const bool is_first = stage == 0;
  const bool is_last = stage + 1 == stages_->mesh().stages;
  return {.samples = SliceOf(samples, pipeline, stages_->mesh().pipelines),
          .reads = is_first || is_last,
          .decides = is_first,
          .scores = is_last};
}

Result<std::vector<WeightAndAverage>> PipelineState::Averages(comm::Communicator& /*communicator*/) const {
  return comm::CatchTorch(ErrorCode::kInternal, "averages", [this] { return stages_->Averages(); });
}

Result<at::Tensor> PipelineState::Evaluate(comm::Communicator& communicator, const at::Tensor& inputs) {
  return ForwardThroughStage(communicator, *stages_, inputs);
}

}  // namespace lockstep::train
