// The step of StagedState: from zeroed gradients to the sums that all ranks know, and what it takes in memory.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "runtime/comm/torch_error.h"
#include "runtime/train/pipeline/staged_state.h"
#include "runtime/train/step/gradients.h"

namespace lockstep::train {
namespace {

using comm::CatchTorch;
using comm::Communicator;

}  // namespace

StateMemory StagedState::Memory(int world) const {
  StateMemory most;
  const parallel::Mesh mesh = MeshFor(world);
  for (const parallel::LayerRange& range : parallel::DivideLayers(costs_, mesh.stages)) {
    const std::vector<bool> layers = LayersOf(range);
    StateMemory stage;
    for (const Entry& entry : entries_) {
      if (!IsHeldBy(entry, layers)) continue;
      const auto bytes = static_cast<int64_t>(entry.stand_in.nbytes());
      (entry.kind == Kind::kMoment ? stage.optimizer : stage.parameters) += bytes;
      // That of a micro-batch, before it is added to those of the others.
      if (entry.is_trained) stage.gathered = std::max(stage.gathered, bytes);
      if (entry.is_trained) stage.gradients += bytes;
      if (entry.kind == Kind::kBuffer) stage.undo += bytes;
    }
    // What is sent and received of the sum over the stage replicas.
    stage.gathered = std::max(stage.gathered, 2 * stage.gradients * (mesh.pipelines - 1) / mesh.pipelines);
    if (stage.total() > most.total()) most = stage;
  }
  return most;
}

Result<void> StagedState::BeginStep() {
  return CatchTorch(ErrorCode::kInternal, "preparing the step", [this] {
    const at::NoGradGuard no_grad;
    pending_ = {};
    buffers_before_.clear();
    for (Entry& entry : entries_) {
      if (!entry.data.defined()) continue;
      if (entry.kind == Kind::kBuffer) buffers_before_.push_back(entry.data.clone());
      if (entry.is_trained) entry.in_model.mutable_grad().zero_();
    }
  });
}

Result<void> StagedState::SumGradients(Communicator& communicator) {
  std::vector<parallel::SharedTensor> shared;
  for (const Entry& entry : entries_) {
    if (!entry.is_trained) continue;
    shared.push_back(
        {entry.data.defined() ? entry.in_model.grad() : at::Tensor(), entry.stand_in.numel(), entry.holders});
  }
  return parallel::SumOverHolders(communicator, shared, at::TensorOptions(device_).dtype(at::kFloat));
}

double StagedState::SquaresOnce() const {
  if (!coordinate_.has_value()) return 0;
  const int me = mesh_.RankOf(*coordinate_);
  std::vector<at::Tensor> gradients;
  for (const Entry& entry : entries_) {
    if (entry.is_trained && entry.data.defined() && entry.holders.front() == me)
      gradients.push_back(entry.in_model.grad());
  }
  return SumOfSquares(gradients);
}

int64_t StagedState::LastNotFinite() const {
  int64_t index = -1;
  int64_t last = -1;
  for (const Entry& entry : entries_) {
    if (!entry.is_trained) continue;
    ++index;
    if (entry.data.defined() && !std::isfinite(entry.in_model.grad().norm().item<double>())) last = index;
  }
  return last;
}

std::vector<std::string> StagedState::TrainedNames() const {
  std::vector<std::string> names;
  for (const Entry& entry : entries_) {
    if (entry.is_trained) names.push_back(entry.name);
  }
  return names;
}

void StagedState::AwaitEnd(int64_t round, double learning_rate) {
  pending_ = {version_.step + 1, round};
  pending_learning_rate_ = learning_rate;
}

Result<StepVerdict> StagedState::EndStep(const StepEnd& end, double loss_scale) {
  const Version next = pending_;
  const StepVerdict verdict = VerdictOf(end, loss_scale);
  const double factor = FactorFor(verdict.gradient_norm, end.count * loss_scale, spec_.optimizer.clip_norm);
  const Result<void> done = CatchTorch(ErrorCode::kInternal, "optimizer", [&] {
    const at::NoGradGuard no_grad;
    if (!verdict.applied) return Undo();
    if (optimizer_ == nullptr) return;
    for (const Entry& entry : entries_) {
      if (entry.is_trained && entry.data.defined()) entry.in_model.mutable_grad().mul_(factor);
    }
    optimizer_->Step(version_.step, pending_learning_rate_);
  });
  pending_ = {};
  if (!done.ok()) {
    Forget();  // a half-taken step is not a valid state
    return done.error();
  }
  version_ = next;
  last_end_ = end;
  return verdict;
}

std::vector<WeightAndAverage> StagedState::Averages() const {
  return optimizer_ == nullptr ? std::vector<WeightAndAverage>() : optimizer_->Averages();
}

void StagedState::Undo() {
  const at::NoGradGuard no_grad;
  pending_ = {};
  auto before = buffers_before_.begin();
  for (Entry& entry : entries_) {
    if (before == buffers_before_.end()) return;
    if (entry.kind == Kind::kBuffer && entry.data.defined()) entry.data.copy_(*before++);
  }
  buffers_before_.clear();
}

}  // namespace lockstep::train
