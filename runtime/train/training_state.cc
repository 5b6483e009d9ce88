#include "runtime/train/training_state.h"

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/mix.h"
#include "runtime/train/outer_step.h"

namespace lockstep::train {
namespace {

// The sum of the bits, as integers: one pass over the memory, and any single changed value changes it.
int64_t BitSum(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().reshape(-1);
  const at::Tensor bits = flat.element_size() == 4 ? flat.view(at::kInt) : flat.view(at::kByte);
  return bits.sum(at::kLong).item<int64_t>();
}

void Append(std::vector<NamedTensor>& all, const std::vector<NamedTensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

std::vector<NamedTensor> TrainingState::Tensors() const {
  std::vector<NamedTensor> all = parameters;
  Append(all, buffers);
  Append(all, optimizer->state());
  Append(all, outer_momentum);
  Append(all, loss_scale.state());
  return all;
}

int64_t TrainingState::Digest() const {
  std::vector<NamedTensor> replicated = parameters;
  Append(replicated, optimizer->state());
  Append(replicated, outer_momentum);
  Append(replicated, loss_scale.state());
  uint64_t digest = 0;
  for (const NamedTensor& named : replicated) {
    digest = MixBits(digest, static_cast<uint64_t>(BitSum(named.tensor)),
                     static_cast<uint64_t>(named.tensor.numel()));
  }
  return static_cast<int64_t>(digest);
}

Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input,
                                        at::Device device) {
  TrainingState state;
  state.device = device;
  LOCKSTEP_TRY(state.model, models::MakeModel(spec.model, input, spec.seed));
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    state.model->to(device);
    std::vector<NamedTensor> to_train;
    for (const auto& parameter : state.model->named_parameters()) {
      state.parameters.push_back({parameter.key(), parameter.value()});
      if (parameter.value().requires_grad()) to_train.push_back(state.parameters.back());
    }
    for (const auto& buffer : state.model->named_buffers())
      state.buffers.push_back({buffer.key(), buffer.value()});
    for (const NamedTensor& parameter : to_train) state.trained.push_back(parameter.tensor);
    state.optimizer = MakeOptimizer(spec.optimizer, to_train);
    if (spec.sync.outer.has_value()) state.outer_momentum = MakeOuterMomentum(to_train);
    state.loss_scale = LossScale(spec.precision, spec.global_batch_size);
  }));
  return state;
}

}  // namespace lockstep::train
