#include "runtime/train/step/gradients.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/stack.h>

#include <cmath>

namespace lockstep::train {

double SumOfSquares(const std::vector<at::Tensor>& gradients) {
  if (gradients.empty()) return 0;
  // A single copy from the device, independent of the number of parameters.
  const at::Tensor norms = at::stack(at::_foreach_norm(gradients, 2)).to(at::kDouble).cpu();
  double squares = 0;
  for (int64_t i = 0; i < norms.numel(); ++i) squares += std::pow(norms.const_data_ptr<double>()[i], 2);
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
  if (std::isfinite(norm)) at::_foreach_mul_(gradients, FactorFor(norm, count, clip_norm));
  return norm;
}

}  // namespace lockstep::train
