#include "runtime/train/step/gradients.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>

namespace lockstep::train {
namespace {

std::vector<std::vector<at::Tensor>> ByDevice(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> divided;
  for (const at::Tensor& tensor : tensors) {
    auto group = std::find_if(divided.begin(), divided.end(), [&](const std::vector<at::Tensor>& each) {
      return each.front().device() == tensor.device();
    });
    if (group == divided.end()) group = divided.emplace(divided.end());
    group->push_back(tensor);
  }
  return divided;
}

}  // namespace

double SumOfSquares(const std::vector<at::Tensor>& gradients) {
  double squares = 0;
  for (const std::vector<at::Tensor>& group : ByDevice(gradients)) {
    // A single copy from the device, independent of the number of parameters.
    const at::Tensor norms = at::stack(at::_foreach_norm(group, 2)).to(at::kDouble).cpu();
    for (int64_t i = 0; i < norms.numel(); ++i) squares += std::pow(norms.const_data_ptr<double>()[i], 2);
  }
  return squares;
}

double FactorFor(double norm, double count, std::optional<double> clip_norm) {
  // The 1e-6 is that of PyTorch's clip_grad_norm_: the factor is slightly below one when the norm equals the
  // bound.
  const double shorten = clip_norm.has_value() ? std::min(1.0, *clip_norm / (norm + 1e-6)) : 1.0;
  return shorten / count;
}

double AverageAndClip(const std::vector<at::Tensor>& parameters, double count,
                      std::optional<double> clip_norm) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  const double norm = std::sqrt(SumOfSquares(gradients)) / count;
  if (!std::isfinite(norm)) return norm;
  const double factor = FactorFor(norm, count, clip_norm);
  for (const std::vector<at::Tensor>& group : ByDevice(gradients)) at::_foreach_mul_(group, factor);
  return norm;
}

}  // namespace lockstep::train
