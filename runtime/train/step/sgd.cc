#include "runtime/train/step/sgd.h"

#include <ATen/ops/_fused_sgd.h>

#include <utility>

#include "runtime/train/step/same_settings.h"

namespace lockstep::train {

Sgd::Sgd(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
         std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
    : Optimizer(spec, parameters, std::move(state)) {
  std::vector<at::Tensor> momentum;
  if (spec.momentum != 0) momentum = AddState("optimizer.momentum.", parameters);
  for (const SameSettings& group : GroupsOf(settings, Optimizer::parameters()))
    groups_.push_back({group.settings, group.Of(Optimizer::parameters()), group.Of(momentum)});
}

void Sgd::Update(int64_t, double learning_rate) {
  // With a buffer of zeros, the first step's momentum * 0 + gradient equals the value with which PyTorch
  // initialises the buffer.
  for (OfGroup& group : groups_) {
    at::_fused_sgd_(group.parameters, GradientsOf(group.parameters), group.momentum,
                    group.settings.weight_decay, spec().momentum,
                    learning_rate * group.settings.learning_rate_scale,
                    /*dampening=*/0, spec().nesterov, /*maximize=*/false, /*is_first_step=*/false);
  }
}

}  // namespace lockstep::train
