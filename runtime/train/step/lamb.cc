#include "runtime/train/step/lamb.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/logical_and.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>

namespace lockstep::train {
namespace {

// The moments without their bias towards 0, divided, plus the weight decay: "r + lambda x" of the paper.
std::vector<at::Tensor> DirectionsOf(const AdamGroup& group, const api::OptimizerSpec& spec, int64_t step) {
  const double updates = static_cast<double>(step) + 1;  // includes skipped steps, as in Adam
  std::vector<at::Tensor> denominators = at::_foreach_sqrt(group.square);
  at::_foreach_div_(denominators, std::sqrt(1 - std::pow(spec.beta2, updates)));
  at::_foreach_add_(denominators, spec.epsilon);
  std::vector<at::Tensor> directions = at::_foreach_div(group.mean, denominators);
  at::_foreach_div_(directions, 1 - std::pow(spec.beta1, updates));
  if (group.settings.weight_decay != 0)
    at::_foreach_add_(directions, group.parameters, group.settings.weight_decay);
  return directions;
}

// The norm of each parameter divided by that of its direction; 1 where either is 0. The numbers stay on the
// device, so that the host does not wait for them.
std::vector<at::Tensor> TrustRatiosOf(const AdamGroup& group, const std::vector<at::Tensor>& directions) {
  const at::Tensor of_parameters = at::stack(at::_foreach_norm(group.parameters));
  const at::Tensor of_directions = at::stack(at::_foreach_norm(directions));
  const at::Tensor both_move = at::logical_and(of_parameters > 0, of_directions > 0);
  return at::where(both_move, of_parameters / of_directions, 1.0).unbind();
}

void UpdateGroup(const AdamGroup& group, const api::OptimizerSpec& spec, int64_t step, double learning_rate) {
  const std::vector<at::Tensor> gradients = GradientsOf(group.parameters);
  at::_foreach_lerp_(group.mean, gradients, 1 - spec.beta1);
  at::_foreach_mul_(group.square, spec.beta2);
  at::_foreach_addcmul_(group.square, gradients, gradients, 1 - spec.beta2);
  const std::vector<at::Tensor> directions = DirectionsOf(group, spec, step);
  at::_foreach_mul_(directions, TrustRatiosOf(group, directions));
  at::_foreach_sub_(group.parameters, directions, learning_rate * group.settings.learning_rate_scale);
}

}  // namespace

void Lamb::Update(int64_t step, double learning_rate) {
  for (const AdamGroup& group : groups()) UpdateGroup(group, spec(), step, learning_rate);
}

}  // namespace lockstep::train
