#include "runtime/parallel/local_gradients.h"

#include <ATen/ATen.h>

#include <utility>

#include "runtime/comm/torch_error.h"

namespace lockstep::parallel {
namespace {

using comm::CatchTorch;

class LocalGradients final : public Strategy {
 public:
  explicit LocalGradients(std::vector<at::Tensor> parameters) : parameters_(std::move(parameters)) {
    Forget();
  }

  ~LocalGradients() override { Forget(); }

  Result<void> BeginStep(std::span<const int64_t>) override {
    Forget();
    return {};
  }

  Result<void> Backward(const at::Tensor& loss_sum, bool last) override {
    LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "backward pass", [&] { loss_sum.backward(); }));
    return last ? BackwardOfNothing() : Result<void>();
  }

  double exposed_seconds() const override { return 0; }

  // The optimizer needs all gradients, including those that no pass has produced.
  Result<void> BackwardOfNothing() override {
    return CatchTorch(ErrorCode::kInternal, "gradients of zero", [this] {
      for (at::Tensor& parameter : parameters_) {
        if (!parameter.grad().defined()) parameter.mutable_grad() = at::zeros_like(parameter);
      }
    });
  }

 private:
  void Forget() {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

  std::vector<at::Tensor> parameters_;
};

}  // namespace

Result<std::unique_ptr<Strategy>> MakeLocalGradients(std::vector<at::Tensor> parameters) {
  if (parameters.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  std::unique_ptr<Strategy> strategy;
  LOCKSTEP_TRY(CatchTorch(ErrorCode::kInternal, "preparing gradients",
                          [&] { strategy = std::make_unique<LocalGradients>(std::move(parameters)); }));
  return strategy;
}

}  // namespace lockstep::parallel
