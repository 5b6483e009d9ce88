#include "runtime/parallel/replica_gradients.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "runtime/comm/torch_error.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

class ReplicaGradients final : public Strategy {
 public:
  explicit ReplicaGradients(std::vector<std::vector<at::Tensor>> replicas) : replicas_(std::move(replicas)) {
    Forget();
  }

  ~ReplicaGradients() override { Forget(); }

  // In every step, because the optimizer, a checkpoint or a peer may have changed the parameters.
  Result<void> BeginStep(std::span<const int64_t>) override {
    Forget();
    return CatchTorch(ErrorCode::kInternal, "copying parameters to the devices", [this] {
      const at::NoGradGuard no_grad;
      for (std::size_t d = 1; d < replicas_.size(); ++d) {
        for (std::size_t i = 0; i < First().size(); ++i)
          replicas_[d][i].copy_(First()[i], /*non_blocking=*/true);
      }
    });
  }

  // Gradients of earlier micro-batches accumulate on their devices.
  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "backward pass", [&] { loss_sum.backward(); }));
    return last ? BackwardOfNothing() : Result<void>();
  }

  double exposed_seconds() const override { return 0; }

  Result<void> BackwardOfNothing() override {
    return CatchTorch(ErrorCode::kInternal, "summing gradients of the devices", [this] {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < First().size(); ++i) {
        if (First()[i].requires_grad()) SumOnFirst(i);
      }
    });
  }

 private:
  std::vector<at::Tensor>& First() { return replicas_.front(); }

  // Sums one device after the other, so that the bits do not depend on which one is done first.
  void SumOnFirst(std::size_t i) {
    at::Tensor& sum = First()[i].mutable_grad();
    for (std::size_t d = 1; d < replicas_.size(); ++d) {
      // Undefined if the pass did not reach the parameter, or the device had no sample.
      const at::Tensor part = std::exchange(replicas_[d][i].mutable_grad(), at::Tensor());
      if (!part.defined()) continue;
      const at::Tensor here = part.to(First()[i].device(), /*non_blocking=*/true);
      if (sum.defined()) {
        sum.add_(here);
      } else {
        sum = here;
      }
    }
    if (!sum.defined()) sum = at::zeros_like(First()[i]);
  }

  void Forget() {
    for (auto& replica : replicas_) {
      for (at::Tensor& parameter : replica) parameter.mutable_grad().reset();
    }
  }

  std::vector<std::vector<at::Tensor>> replicas_;
};

bool TrainsAny(const std::vector<std::vector<at::Tensor>>& replicas) {
  return !replicas.empty() && std::any_of(replicas.front().begin(), replicas.front().end(),
                                          [](const at::Tensor& one) { return one.requires_grad(); });
}

}  // namespace

Result<std::unique_ptr<Strategy>> MakeReplicaGradients(std::vector<std::vector<at::Tensor>> replicas) {
  if (!TrainsAny(replicas)) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  std::unique_ptr<Strategy> strategy;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "preparing gradients",
                          [&] { strategy = std::make_unique<ReplicaGradients>(std::move(replicas)); }));
  return strategy;
}

}  // namespace lockstep::parallel
