#include "runtime/train/replicated/replicated_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <span>

#include "runtime/comm/torch_error.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/mix.h"
#include "runtime/common/base/strings.h"
#include "runtime/train/replicated/placed_layers.h"
#include "runtime/train/replicated/replicated_stepper.h"
#include "runtime/train/state/broadcast.h"

namespace lockstep::train {
namespace {

using comm::Communicator;

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

void Append(std::vector<NamedTensor>& all, const std::vector<NamedTensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

int64_t HostOf(const Communicator& communicator) {
  return std::bit_cast<int64_t>(std::stoull(StableHash(communicator.place().address), nullptr, 16));
}

std::vector<FromRank> From(int root, const std::vector<NamedTensor>& tensors) {
  std::vector<FromRank> all;
  all.reserve(tensors.size());
  for (const NamedTensor& named : tensors) all.push_back({named.tensor, root, named.tensor});
  return all;
}

}  // namespace

// What a rank reports about itself.
struct ReplicatedModel::RankState {
  int64_t step = -1;
  int64_t digest = 0;
  int64_t host = 0;  // hash of its address
  EvaluationRecord evaluations;

  [[nodiscard]] bool IsLevelWith(const RankState& other) const {
    return step == other.step && digest == other.digest;
  }
  // The rules are in replicated_model.h. `has_a_step`: also one that it does not offer.
  [[nodiscard]] Receiving HowToReceive(const std::vector<RankState>& all, const RankState& best,
                                       bool has_a_step) const {
    if (IsLevelWith(best)) return Receiving::kScratch;
    const bool is_held_on_two_hosts = std::any_of(all.begin(), all.end(), [&](const RankState& each) {
      return each.IsLevelWith(best) && each.host != best.host;
    });
    return !has_a_step || is_held_on_two_hosts ? Receiving::kInPlace : Receiving::kStaged;
  }
};

Result<std::vector<NamedTensor>> ReplicatedModel::BuildModel() {
  LOCKSTEP_TRY(std::shared_ptr<Model> made, FreshModel());
  const bool is_divided = spec().strategy == api::Strategy::kModelparallel;
  if (is_divided) {
    LOCKSTEP_TRY(made, PlaceLayers(std::move(made), devices_));
  }
  std::vector<NamedTensor> to_train;
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    if (!is_divided) made->to(device);
    TakeModel(std::move(made));
    for (const NamedTensor& parameter : parameters) {
      if (parameter.tensor.requires_grad()) to_train.push_back(parameter);
    }
    for (const NamedTensor& parameter : to_train) trained_.push_back(parameter.tensor);
    replicas_.push_back(ReplicaOf(model, std::span(devices_).first(is_divided ? devices_.size() : 1)));
  }));
  for (std::size_t other = 1; !is_divided && other < devices_.size(); ++other) {
    LOCKSTEP_TRY(std::shared_ptr<Model> replica, FreshModel());
    LOCKSTEP_TRY(AddReplica(std::move(replica), devices_[other]));
  }
  return to_train;
}

Result<void> ReplicatedModel::AddReplica(std::shared_ptr<Model> replica, at::Device on) {
  return comm::CatchTorch(ErrorCode::kInvalidArgument, "spec.training.model", [&] {
    replica->to(on);
    replicas_.push_back(ReplicaOf(std::move(replica), std::span(&on, 1)));
  });
}

std::vector<NamedTensor> ReplicatedModel::With(const std::vector<NamedTensor>& moments) const {
  std::vector<NamedTensor> all = parameters;
  Append(all, buffers);
  Append(all, moments);
  Append(all, loss_scale.state());
  return all;
}

std::vector<ReplicatedModel::Held> ReplicatedModel::HeldByDevice() const {
  if (spec().strategy != api::Strategy::kModelparallel) return {{parameters, buffers, HeldMoments()}};
  const auto device_of = DevicesOfTensors(model->Layers(), devices_.size());
  std::vector<Held> held(devices_.size());
  const auto on_device_of = [&](const at::Tensor& tensor) -> Held& {
    return held[device_of.at(tensor.unsafeGetTensorImpl())];
  };
  for (const NamedTensor& parameter : parameters)
    on_device_of(parameter.tensor).parameters.push_back(parameter);
  for (const NamedTensor& buffer : buffers) on_device_of(buffer.tensor).buffers.push_back(buffer);
  const std::vector<NamedTensor> moments = HeldMoments();  // slot after slot, of all that are trained
  for (std::size_t i = 0; i < moments.size(); ++i)
    on_device_of(trained_[i % trained_.size()]).moments.push_back(moments[i]);
  return held;
}

StateMemory ReplicatedModel::Memory(int world) const {
  StateMemory most;
  for (const Held& held : HeldByDevice()) {
    const StateMemory memory = MemoryOf(held, world);
    if (memory.total() > most.total()) most = memory;
  }
  return most;
}

StateMemory ReplicatedModel::MemoryOf(const Held& held, int world) const {
  int64_t gradient = 0;
  int64_t largest = 0;  // autograd makes it before it is added to the others
  for (const NamedTensor& parameter : held.parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    gradient += static_cast<int64_t>(parameter.tensor.nbytes());
    largest = std::max(largest, static_cast<int64_t>(parameter.tensor.nbytes()));
  }
  // The partial sums of a tree over micro-batches (parallel/deterministic_data_parallel.cc).
  int64_t gradients = 1;
  if (spec().determinism == api::Determinism::kWorld) {
    const int64_t share = (spec().global_batch_size + world - 1) / world;
    const int64_t micro_batch = spec().micro_batch_size.value_or(share);
    const int64_t micro_batches = (share + micro_batch - 1) / micro_batch;
    gradients = static_cast<int64_t>(std::bit_width(static_cast<uint64_t>(micro_batches))) + 2;
  }
  return {.parameters = BytesOf(held.parameters) + BytesOf(held.buffers),
          .gradients = gradients * gradient,
          .optimizer = BytesOf(held.moments),
          .undo = BytesOf(held.buffers),
          .gathered = largest};
}

int64_t ReplicatedModel::Digest() const {
  std::vector<NamedTensor> replicated = parameters;
  Append(replicated, HeldMoments());
  Append(replicated, loss_scale.state());
  uint64_t digest = 0;
  for (const NamedTensor& named : replicated) {
    digest = MixBits(digest, static_cast<uint64_t>(BitSum(named.tensor)),
                     static_cast<uint64_t>(named.tensor.numel()));
  }
  return static_cast<int64_t>(digest);
}

Result<void> ReplicatedModel::StartAfresh() {
  LOCKSTEP_TRY(const std::shared_ptr<Model> fresh, FreshModelAgain());
  LOCKSTEP_TRY(comm::CatchTorch(ErrorCode::kInternal, "starting afresh", [&] {
    const at::NoGradGuard no_grad;
    const auto fresh_parameters = fresh->named_parameters();
    const auto fresh_buffers = fresh->named_buffers();
    for (const NamedTensor& named : parameters) named.tensor.copy_(fresh_parameters[named.name]);
    for (const NamedTensor& named : buffers) named.tensor.copy_(fresh_buffers[named.name]);
    for (const NamedTensor& named : HeldMoments()) named.tensor.zero_();
    loss_scale = LossScale(spec().precision, spec().global_batch_size);
  }));
  Complete(0);
  evaluations = {};
  return {};
}

std::unique_ptr<Stepper> ReplicatedModel::MakeStepper(const StepContext& context) {
  return std::make_unique<ReplicatedStepper>(context, *this);
}

Result<std::vector<ReplicatedModel::RankState>> ReplicatedModel::ExchangeRankStates(
    Communicator& communicator, int64_t offered) const {
  const std::vector<int64_t> mine = {offered,
                                     Digest(),
                                     HostOf(communicator),
                                     evaluations.step,
                                     std::bit_cast<int64_t>(evaluations.newest),
                                     std::bit_cast<int64_t>(evaluations.best),
                                     evaluations.without_improvement};
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

Result<StateSource> ReplicatedModel::SyncAtStart(Communicator& communicator, const Restore& restore,
                                                 std::vector<RankState>& all) {
  LOCKSTEP_TRY(const bool restored, restore(*this));
  if (!restored) Complete(0);
  LOCKSTEP_TRY(all, ExchangeRankStates(communicator, step));
  return restored ? StateSource::kCheckpoint : StateSource::kFresh;
}

// Takes the evaluations that belong to the state. All ranks must have the same ones, because their next
// decisions depend on them.
void ReplicatedModel::TakeEvaluations(StateSource source, const std::vector<RankState>& all) {
  if (source == StateSource::kFresh || source == StateSource::kCheckpoint) {
    evaluations = all.front().evaluations;
    return;
  }
  if (evaluations.step > step) evaluations = {};  // of steps that will be repeated
  for (const RankState& rank_state : all) {
    if (rank_state.step == step && rank_state.evaluations.step > evaluations.step)
      evaluations = rank_state.evaluations;
  }
}

Result<StateSource> ReplicatedModel::Sync(Communicator& communicator, const Restore& restore) {
  LOCKSTEP_TRY(const int64_t offered, Offer(communicator));
  LOCKSTEP_TRY(std::vector<RankState> all, ExchangeRankStates(communicator, offered));
  const auto highest = [&all] {
    return std::max_element(all.begin(), all.end(),
                            [](const RankState& a, const RankState& b) { return a.step < b.step; });
  };
  StateSource source = StateSource::kKept;
  if (highest()->step < 0) {
    LOCKSTEP_TRY(source, SyncAtStart(communicator, restore, all));
  }
  const auto root = static_cast<int>(highest() - all.begin());
  const RankState& best = *highest();
  const bool all_hold_the_same = std::all_of(
      all.begin(), all.end(), [&](const RankState& each) { return each.IsLevelWith(all.front()); });
  if (!all_hold_the_same) {
    const RankState& mine = all.at(static_cast<std::size_t>(communicator.rank()));
    const bool diverged = best.step == mine.step && best.digest != mine.digest;
    if (diverged) log::Warning("state differs at the same step; taking the peer's", {{"step", step}});
    const Receiving receiving = mine.HowToReceive(all, best, /*has_a_step=*/step >= 0);
    LOCKSTEP_TRY(BroadcastTensors(communicator, From(root, Replicated()), receiving, [&] { Tear(); }));
    if (source == StateSource::kKept && receiving != Receiving::kScratch) source = StateSource::kPeer;
  }
  Complete(best.step);
  TakeEvaluations(source, all);
  LOCKSTEP_TRY(Settle(communicator));
  return source;
}

Result<void> ReplicatedModel::SyncBuffers(Communicator& communicator) {
  if (buffers.empty() || communicator.world() == 1) return {};
  // Buffers are small, and those of one step must stay consistent.
  const Receiving receiving = communicator.rank() == 0 ? Receiving::kScratch : Receiving::kStaged;
  return BroadcastTensors(communicator, From(0, buffers), receiving);
}

}  // namespace lockstep::train
