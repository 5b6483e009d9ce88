#pragma once
// DiLoCo's outer step (Douillard et al., arXiv 2311.08105): the averaged change of a window is treated as a
// gradient for one step of Nesterov momentum. LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/common/api/training_spec.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

// A zero tensor for each trained parameter, named "outer.momentum.<parameter>".
[[nodiscard]] std::vector<NamedTensor> MakeOuterMomentum(const std::vector<NamedTensor>& parameters);

// g = before - after;  m = momentum m + g;  after = before - rate (g + momentum m)
void OuterStep(const api::OuterSpec& spec, std::span<const at::Tensor> before,
               std::span<const at::Tensor> after, const std::vector<NamedTensor>& momentum);

}  // namespace lockstep::train
