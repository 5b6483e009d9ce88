#include "runtime/train/step/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <utility>

namespace lockstep::train {
namespace {

std::vector<at::Tensor> TensorsOf(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& entry : named) tensors.push_back(entry.tensor);
  return tensors;
}

std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

class Sgd final : public Optimizer {
 public:
  Sgd(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
      std::vector<at::Tensor> state)
      : Optimizer(std::move(state)), spec_(spec), parameters_(TensorsOf(parameters)) {
    if (spec.momentum != 0) momentum_ = AddState("momentum", parameters);
  }

  void Step(int64_t, double learning_rate) override {
    const at::NoGradGuard no_grad;
    // With a buffer of zeros, the first step's momentum * 0 + gradient equals the value with which PyTorch
    // initialises the buffer.
    at::_fused_sgd_(parameters_, GradientsOf(parameters_), momentum_, spec_.weight_decay, spec_.momentum,
                    learning_rate,
                    /*dampening=*/0, spec_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  }

 private:
  const api::OptimizerSpec spec_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> momentum_;
};

class Adam final : public Optimizer {
 public:
  Adam(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
       std::vector<at::Tensor> state)
      : Optimizer(std::move(state)),
        spec_(spec),
        parameters_(TensorsOf(parameters)),
        mean_(AddState("exp_avg", parameters)),
        square_(AddState("exp_avg_sq", parameters)) {}

  void Step(int64_t step, double learning_rate) override {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> gradients = GradientsOf(parameters_);
    // The kernel's bias correction uses the number of updates: here the number of steps including this one,
    // and including skipped steps.
    const std::vector<at::Tensor> counts(
        parameters_.size(), at::full({}, step + 1, parameters_.front().options().dtype(at::kFloat)));
    if (spec_.name == api::OptimizerName::kAdamw) {
      at::_fused_adamw_(parameters_, gradients, mean_, square_, {}, counts, learning_rate, spec_.beta1,
                        spec_.beta2, spec_.weight_decay, spec_.epsilon, /*amsgrad=*/false,
                        /*maximize=*/false);
    } else {
      at::_fused_adam_(parameters_, gradients, mean_, square_, {}, counts, learning_rate, spec_.beta1,
                       spec_.beta2, spec_.weight_decay, spec_.epsilon, /*amsgrad=*/false, /*maximize=*/false);
    }
  }

 private:
  const api::OptimizerSpec spec_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> mean_;
  std::vector<at::Tensor> square_;
};

}  // namespace

std::vector<at::Tensor> Optimizer::AddState(const std::string& slot,
                                            const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) {
    tensors.push_back(given_.empty()
                          ? at::zeros_like(parameter.tensor, at::MemoryFormat::Preserve).requires_grad_(false)
                          : given_.at(state_.size()));
    state_.push_back({"optimizer." + slot + "." + parameter.name, tensors.back()});
  }
  return tensors;
}

std::unique_ptr<Optimizer> MakeOptimizer(const api::OptimizerSpec& spec,
                                         const std::vector<NamedTensor>& parameters,
                                         std::vector<at::Tensor> state) {
  if (spec.name == api::OptimizerName::kSgd) return std::make_unique<Sgd>(spec, parameters, std::move(state));
  return std::make_unique<Adam>(spec, parameters, std::move(state));
}

}  // namespace lockstep::train
