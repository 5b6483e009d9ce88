#include "runtime/train/training_state.h"

#include <algorithm>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/mix.h"
#include "runtime/train/outer_step.h"

namespace lockstep::train {
namespace {

// Bounds the memory of a sum, because LibTorch converts its input to 8 bytes per element first.
constexpr int64_t kSummedAtOnce = int64_t{1} << 20;

// The sum of the bits as integers: one pass over memory, and any single changed value changes it.
int64_t BitSum(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().reshape(-1);
  const at::Tensor bits = flat.element_size() == 4 ? flat.view(at::kInt) : flat.view(at::kByte);
  at::Tensor sum = at::zeros({}, bits.options().dtype(at::kLong));
  for (int64_t begin = 0; begin < bits.numel(); begin += kSummedAtOnce)
    sum += bits.narrow(0, begin, std::min(kSummedAtOnce, bits.numel() - begin)).sum(at::kLong);
  return sum.item<int64_t>();
}

// The spec has created this state before, so the failure has another reason, for example lack of memory.
Error AgainError(const Error& error) {
  return {error.code == ErrorCode::kInvalidArgument ? ErrorCode::kInternal : error.code, error.message};
}

void Append(std::vector<NamedTensor>& all, const std::vector<NamedTensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Makes parameters and buffers contiguous whatever order a plugin or file gives them: sums, fused optimizers
// and checkpoints process tensors and gradients by memory order.
void LayOutInOrder(torch::nn::Module& model) {
  const auto lay_out = [](at::Tensor& tensor) {
    if (!tensor.is_contiguous()) tensor.set_data(tensor.contiguous());
  };
  for (at::Tensor& parameter : model.parameters()) lay_out(parameter);
  for (at::Tensor& buffer : model.buffers()) lay_out(buffer);
}

Result<void> AddReplica(const api::TrainingSpec& spec, at::Device device, TrainingState& state) {
  LOCKSTEP_TRY(std::shared_ptr<Model> model, models::MakeModel(spec.model, state.input, spec.seed));
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    LayOutInOrder(*model);
    model->to(device);
    state.replicas.push_back(ReplicaOf(std::move(model), device));
  });
}

}  // namespace

std::vector<NamedTensor> TrainingState::Tensors() const {
  if (staged != nullptr) {
    std::vector<NamedTensor> all = staged->tensors();
    Append(all, loss_scale.state());
    return all;
  }
  std::vector<NamedTensor> all = parameters;
  Append(all, buffers);
  Append(all, sharded == nullptr ? optimizer->state() : sharded->described());
  Append(all, outer_momentum);
  Append(all, loss_scale.state());
  return all;
}

std::vector<NamedTensor> TrainingState::Replicated() const {
  if (staged != nullptr) return loss_scale.state();
  std::vector<NamedTensor> all = parameters;
  Append(all, buffers);
  if (sharded == nullptr) Append(all, optimizer->state());
  Append(all, outer_momentum);
  Append(all, loss_scale.state());
  return all;
}

int64_t TrainingState::Digest() const {
  std::vector<NamedTensor> replicated = parameters;
  if (sharded == nullptr) Append(replicated, optimizer->state());
  Append(replicated, outer_momentum);
  Append(replicated, loss_scale.state());
  uint64_t digest = 0;
  for (const NamedTensor& named : replicated) {
    digest = MixBits(digest, static_cast<uint64_t>(BitSum(named.tensor)),
                     static_cast<uint64_t>(named.tensor.numel()));
  }
  return static_cast<int64_t>(digest);
}

void TrainingState::Tear() {
  if (staged != nullptr) return;
  step = -1;
  is_torn = true;
  if (sharded != nullptr) sharded->ForgetParameters();
}

void TrainingState::Complete(int64_t completed_steps) {
  step = completed_steps;
  is_torn = false;
}

Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input,
                                        std::span<const at::Device> devices, int ranks_in_pod) {
  const at::Device device = devices.front();
  TrainingState state;
  state.device = device;
  state.input = input;
  LOCKSTEP_TRY(state.model, models::MakeModel(spec.model, input, spec.seed));
  std::vector<NamedTensor> to_train;
  const bool is_staged = api::DividesLayers(spec.strategy);
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    LayOutInOrder(*state.model);
    if (!is_staged) state.model->to(device);
    for (const auto& parameter : state.model->named_parameters()) {
      state.parameters.push_back({parameter.key(), parameter.value()});
      if (parameter.value().requires_grad()) to_train.push_back(state.parameters.back());
    }
    for (const auto& buffer : state.model->named_buffers())
      state.buffers.push_back({buffer.key(), buffer.value()});
    state.loss_scale = LossScale(spec.precision, spec.global_batch_size);
    if (is_staged) return;
    state.replicas.push_back(ReplicaOf(state.model, device));
    for (const NamedTensor& parameter : to_train) state.trained.push_back(parameter.tensor);
    if (spec.strategy != api::Strategy::kZero1) state.optimizer = MakeOptimizer(spec.optimizer, to_train);
    if (spec.sync.outer.has_value()) state.outer_momentum = MakeOuterMomentum(to_train);
  }));
  for (const at::Device other : devices.subspan(1)) LOCKSTEP_TRY(AddReplica(spec, other, state));
  if (is_staged) {
    LOCKSTEP_TRY(state.staged, StagedState::Make(spec, input, state.model, device));
  }
  if (spec.strategy == api::Strategy::kZero1) {
    LOCKSTEP_TRY(state.sharded, ShardedOptimizer::Make(spec.optimizer, std::move(to_train),
                                                       {spec.zero1.copies, ranks_in_pod}));
  }
  return state;
}

Result<TrainingState> MakeTrainingState(const api::TrainingSpec& spec, const ModelInput& input) {
  const at::Device cpu = at::kCPU;
  return MakeTrainingState(spec, input, std::span(&cpu, 1));
}

Result<void> StartAfresh(const api::TrainingSpec& spec, TrainingState& state) {
  if (state.staged != nullptr) {  // each rank does this when it learns the outcome
    state.step = 0;
    state.evaluations = {};
    return {};
  }
  const Result<TrainingState> made = MakeTrainingState(spec, state.input, std::span(&state.device, 1));
  if (!made.ok()) return AgainError(made.error());
  const TrainingState& fresh = *made;
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "starting afresh", [&] {
    const at::NoGradGuard no_grad;
    const std::vector<NamedTensor> from = fresh.Replicated();
    const std::vector<NamedTensor> to = state.Replicated();
    for (std::size_t i = 0; i < to.size(); ++i) to[i].tensor.copy_(from[i].tensor);
  }));
  state.Complete(0);
  state.evaluations = {};
  if (state.sharded != nullptr) state.sharded->StartAfresh();
  return {};
}

}  // namespace lockstep::train
