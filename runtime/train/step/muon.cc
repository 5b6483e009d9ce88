#include "runtime/train/step/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/matmul.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep::train {
namespace {

// Of PyTorch's implementation. The polynomial moves the singular values of a matrix towards 1. It may be
// computed in bfloat16, because each iteration corrects errors of the one before.
constexpr double kLinear = 3.4445;
constexpr double kCubic = -4.7750;
constexpr double kQuintic = 2.0315;
constexpr int kIterations = 5;
constexpr double kSmallestNorm = 1e-7;

// The root mean square of AdamW's updates, as measured by Liu et al.
constexpr double kSizeOfAdamw = 0.2;

// Newton-Schulz iterations.
at::Tensor Orthogonalised(const at::Tensor& matrix) {
  at::Tensor result = matrix.to(at::kBFloat16);
  const bool is_tall = matrix.size(0) > matrix.size(1);
  if (is_tall) result = result.t();  // the product of the result with itself is the smaller one then
  result = result / result.norm().clamp_min(kSmallestNorm);
  for (int i = 0; i < kIterations; ++i) {
    const at::Tensor gram = at::matmul(result, result.t());
    const at::Tensor polynomial = at::addmm(gram, gram, gram, kCubic, kQuintic);
    result = at::addmm(result, polynomial, result, kLinear);
  }
  return is_tall ? result.t() : result;
}

}  // namespace

Muon::Muon(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
           std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
    : Optimizer(spec, parameters, std::move(state)) {
  const std::vector<at::Tensor> mean = AddState("optimizer.momentum.", parameters);
  const std::vector<at::Tensor> square = AddState("optimizer.exp_avg_sq.", parameters);
  for (const SameSettings& group : GroupsOf(settings, Optimizer::parameters())) {
    if (!group.settings.use_muon) {
      others_.push_back(AdamGroupOf(group, Optimizer::parameters(), mean, square));
      continue;
    }
    for (const std::size_t i : group.members)
      matrices_.push_back({group.settings, Optimizer::parameters()[i], mean[i]});
  }
}

void Muon::Update(int64_t step, double learning_rate) {
  for (const Matrix& matrix : matrices_) UpdateMatrix(matrix, learning_rate);
  for (const AdamGroup& group : others_)
    UpdateWithAdam(group, spec(), WeightDecay::kDecoupled, step, learning_rate);
}

void Muon::UpdateMatrix(const Matrix& matrix, double learning_rate) const {
  const at::Tensor& parameter = matrix.parameter;
  const at::Tensor& gradient = parameter.grad();
  matrix.momentum.lerp_(gradient, 1 - spec().momentum);
  const at::Tensor update =
      spec().nesterov ? gradient.lerp(matrix.momentum, spec().momentum) : matrix.momentum;
  const double rate = learning_rate * matrix.settings.learning_rate_scale;
  const auto longest = static_cast<double>(std::max(parameter.size(0), parameter.size(1)));
  parameter.mul_(1 - rate * matrix.settings.weight_decay);
  parameter.sub_(Orthogonalised(update), rate * kSizeOfAdamw * std::sqrt(longest));
}

}  // namespace lockstep::train
