#include "runtime/train/step/adam.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include <utility>

namespace lockstep::train {

AdamGroup AdamGroupOf(const SameSettings& group, const std::vector<at::Tensor>& parameters,
                      const std::vector<at::Tensor>& mean, const std::vector<at::Tensor>& square) {
  return {group.settings, group.Of(parameters), group.Of(mean), group.Of(square)};
}

void UpdateWithAdam(const AdamGroup& group, const api::OptimizerSpec& spec, WeightDecay weight_decay,
                    int64_t step, double learning_rate) {
  const std::vector<at::Tensor> gradients = GradientsOf(group.parameters);
  const double rate = learning_rate * group.settings.learning_rate_scale;
  // The kernel's bias correction uses the number of updates: here the number of steps including this one,
  // and including skipped steps.
  const std::vector<at::Tensor> counts(
      gradients.size(), at::full({}, step + 1, group.parameters.front().options().dtype(at::kFloat)));
  if (weight_decay == WeightDecay::kDecoupled) {
    at::_fused_adamw_(group.parameters, gradients, group.mean, group.square, {}, counts, rate, spec.beta1,
                      spec.beta2, group.settings.weight_decay, spec.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
  } else {
    at::_fused_adam_(group.parameters, gradients, group.mean, group.square, {}, counts, rate, spec.beta1,
                     spec.beta2, group.settings.weight_decay, spec.epsilon,
                     /*amsgrad=*/false, /*maximize=*/false);
  }
}

WithAdamGroups::WithAdamGroups(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
                               std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
    : Optimizer(spec, parameters, std::move(state)) {
  const std::vector<at::Tensor> mean = AddState("optimizer.exp_avg.", parameters);
  const std::vector<at::Tensor> square = AddState("optimizer.exp_avg_sq.", parameters);
  for (const SameSettings& group : GroupsOf(settings, Optimizer::parameters()))
    groups_.push_back(AdamGroupOf(group, Optimizer::parameters(), mean, square));
}

void Adam::Update(int64_t step, double learning_rate) {
  const bool is_decoupled = spec().name == api::OptimizerName::kAdamw;
  for (const AdamGroup& group : groups()) {
    UpdateWithAdam(group, spec(), is_decoupled ? WeightDecay::kDecoupled : WeightDecay::kInGradient, step,
                   learning_rate);
  }
}

}  // namespace lockstep::train
