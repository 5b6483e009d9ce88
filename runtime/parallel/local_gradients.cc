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
    const at::NoGradGuard no_grad;
    // Also of those that a pass does not reach: the optimizer wants all of them.
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::zeros_like(parameter);
  }

  ~LocalGradients() override {
    for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
  }

  Result<void> BeginStep(std::span<const int64_t>) override {
    return CatchTorch(ErrorCode::kInternal, "preparing the step", [this] {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : parameters_) parameter.mutable_grad().zero_();
    });
  }

  Result<void> Backward(const at::Tensor& loss_sum, bool) override {
    return CatchTorch(ErrorCode::kInternal, "backward pass", [&] { loss_sum.backward(); });
  }

  double exposed_seconds() const override { return 0; }

  Result<void> BackwardOfNothing() override { return {}; }

 private:
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
