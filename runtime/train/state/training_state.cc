#include "runtime/train/state/training_state.h"

#include "runtime/comm/torch_error.h"
#include "runtime/models/gradient_checkpointing.h"
#include "runtime/train/step/parameter_groups.h"

namespace lockstep::train {
namespace {

// Makes parameters and buffers contiguous whatever order a plugin or file gives them: sums, fused optimizers
// and checkpoints process tensors and gradients by memory order.
void LayOutInOrder(torch::nn::Module& model) {
  const auto lay_out = [](at::Tensor& tensor) {
    if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
  };
  for (at::Tensor& parameter : model.parameters()) lay_out(parameter);
  for (at::Tensor& buffer : model.buffers()) lay_out(buffer);
}

}  // namespace

int64_t BytesOf(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& named : tensors) bytes += named.tensor.numel() * named.tensor.element_size();
  return bytes;
}

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

std::set<std::string> TrainingState::WeightNames() const {
  std::set<std::string> names;
  for (const auto* tensors : {&parameters, &buffers}) {
    for (const NamedTensor& named : *tensors) names.insert(named.name);
  }
  return names;
}

Result<std::shared_ptr<Model>> TrainingState::FreshModel() const {
  LOCKSTEP_TRY(std::shared_ptr<Model> fresh, models::MakeModel(spec_.model, input, spec_.seed));
  LOCKSTEP_TRY(
      comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] { LayOutInOrder(*fresh); }));
  LOCKSTEP_TRY(Freeze(spec_.optimizer, *fresh));
  if (!spec_.gradient_checkpointing) return fresh;
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model",
                          [&] { return models::WithGradientCheckpointing(std::move(fresh)); });
}

Result<std::shared_ptr<Model>> TrainingState::FreshModelAgain() const {
  Result<std::shared_ptr<Model>> fresh = FreshModel();
  if (!fresh.ok() && fresh.error().code == ErrorCode::kInvalidArgument)
    return Error{ErrorCode::kInternal, fresh.error().message};
  return fresh;
}

void TrainingState::TakeModel(std::shared_ptr<Model> made) {
  model = std::move(made);
  for (const auto& parameter : model->named_parameters())
    parameters.push_back({parameter.key(), parameter.value()});
  for (const auto& buffer : model->named_buffers()) buffers.push_back({buffer.key(), buffer.value()});
}

PartToEvaluate TrainingState::PartOfEvaluation(int64_t samples, int rank,
                                               std::span<const double> speeds) const {
  return {.samples = SlicesBySpeed(samples, speeds).at(static_cast<std::size_t>(rank))};
}

Result<at::Tensor> TrainingState::Evaluate(comm::Communicator& /*communicator*/, const at::Tensor& inputs) {
  if (!inputs.defined()) return inputs;
  return comm::CatchTorch(ErrorCode::kInternal, "evaluation", [&] { return model->Forward(inputs); });
}

void TrainingState::Tear() {
  step = -1;
  is_torn = true;
}

void TrainingState::Complete(int64_t completed_steps) {
  step = completed_steps;
  is_torn = false;
}

}  // namespace lockstep::train
