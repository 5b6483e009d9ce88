#include "runtime/train/local_sgd/outer_step.h"

#include <ATen/ATen.h>

namespace lockstep::train {

std::vector<NamedTensor> MakeOuterMomentum(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> momentum;
  momentum.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) {
    momentum.push_back({"outer.momentum." + parameter.name,
                        at::zeros_like(parameter.tensor, at::MemoryFormat::Preserve).requires_grad_(false)});
  }
  return momentum;
}

void OuterStep(const api::OuterSpec& spec, std::span<const at::Tensor> before,
               std::span<const at::Tensor> after, const std::vector<NamedTensor>& momentum) {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const at::Tensor gradient = before[i] - after[i];
    const at::Tensor& velocity = momentum[i].tensor;
    velocity.mul_(spec.momentum).add_(gradient);
    after[i].copy_(before[i]).add_(gradient, -spec.learning_rate);
    after[i].add_(velocity, -spec.learning_rate * spec.momentum);
  }
}

}  // namespace lockstep::train
