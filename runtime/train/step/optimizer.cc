#include "runtime/train/step/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <algorithm>
#include <utility>

#include "runtime/checkpoint/manifest.h"

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

// Parameters with equal settings, by index.
struct SameSettings {
  ParameterSettings settings;
  std::vector<std::size_t> members;

  [[nodiscard]] std::vector<at::Tensor> Of(const std::vector<at::Tensor>& all) const {
    std::vector<at::Tensor> mine;
    if (all.empty()) return mine;  // a state slot that this optimizer does not have
    mine.reserve(members.size());
    for (const std::size_t member : members) mine.push_back(all[member]);
    return mine;
  }
};

std::vector<SameSettings> GroupsOf(const std::vector<ParameterSettings>& settings) {
  std::vector<SameSettings> groups;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const SameSettings& each) { return each.settings == settings[i]; });
    if (group == groups.end()) group = groups.insert(groups.end(), SameSettings{settings[i], {}});
    group->members.push_back(i);
  }
  return groups;
}

class Sgd final : public Optimizer {
 public:
  Sgd(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
      std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
      : Optimizer(spec, parameters, std::move(state)) {
    std::vector<at::Tensor> momentum;
    if (spec.momentum != 0) momentum = AddState("optimizer.momentum.", parameters);
    for (const SameSettings& group : GroupsOf(settings))
      groups_.push_back({group.settings, group.Of(Optimizer::parameters()), group.Of(momentum)});
  }

 private:
  void Update(int64_t, double learning_rate) override {
    // With a buffer of zeros, the first step's momentum * 0 + gradient equals the value with which PyTorch
    // initialises the buffer.
    for (OfGroup& group : groups_) {
      at::_fused_sgd_(group.parameters, GradientsOf(group.parameters), group.momentum,
                      group.settings.weight_decay, spec().momentum,
                      learning_rate * group.settings.learning_rate_scale,
                      /*dampening=*/0, spec().nesterov, /*maximize=*/false, /*is_first_step=*/false);
    }
  }

  struct OfGroup {
    ParameterSettings settings;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> momentum;
  };

  std::vector<OfGroup> groups_;
};

class Adam final : public Optimizer {
 public:
  Adam(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
       std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
      : Optimizer(spec, parameters, std::move(state)) {
    const std::vector<at::Tensor> mean = AddState("optimizer.exp_avg.", parameters);
    const std::vector<at::Tensor> square = AddState("optimizer.exp_avg_sq.", parameters);
    for (const SameSettings& group : GroupsOf(settings))
      groups_.push_back(
          {group.settings, group.Of(Optimizer::parameters()), group.Of(mean), group.Of(square)});
  }

 private:
  void Update(int64_t step, double learning_rate) override {
    for (OfGroup& group : groups_)
      UpdateGroup(group, step, learning_rate * group.settings.learning_rate_scale);
  }

  struct OfGroup {
    ParameterSettings settings;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> mean;
    std::vector<at::Tensor> square;
  };

  void UpdateGroup(OfGroup& group, int64_t step, double learning_rate) const {
    const std::vector<at::Tensor> gradients = GradientsOf(group.parameters);
    // The kernel's bias correction uses the number of updates: here the number of steps including this one,
    // and including skipped steps.
    const std::vector<at::Tensor> counts(
        gradients.size(), at::full({}, step + 1, group.parameters.front().options().dtype(at::kFloat)));
    if (spec().name == api::OptimizerName::kAdamw) {
      at::_fused_adamw_(group.parameters, gradients, group.mean, group.square, {}, counts, learning_rate,
                        spec().beta1, spec().beta2, group.settings.weight_decay, spec().epsilon,
                        /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_adam_(group.parameters, gradients, group.mean, group.square, {}, counts, learning_rate,
                       spec().beta1, spec().beta2, group.settings.weight_decay, spec().epsilon,
                       /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  std::vector<OfGroup> groups_;
};

}  // namespace

Optimizer::Optimizer(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
                     std::vector<at::Tensor> given)
    : spec_(spec), parameters_(TensorsOf(parameters)), given_(std::move(given)) {
  if (spec.weight_average) average_minus_weight_ = AddState(checkpoint::kAveragePrefix, parameters);
}

void Optimizer::Step(int64_t step, double learning_rate) {
  const at::NoGradGuard no_grad;
  const bool has_average = !average_minus_weight_.empty();
  if (has_average) at::_foreach_add_(average_minus_weight_, parameters_);
  Update(step, learning_rate);
  if (!has_average) return;
  // decay * average + (1 - decay) * weight, minus the weight.
  at::_foreach_sub_(average_minus_weight_, parameters_);
  at::_foreach_mul_(average_minus_weight_, spec_.weight_average->decay);
}

std::vector<WeightAndAverage> Optimizer::Averages() const {
  const at::NoGradGuard no_grad;
  std::vector<WeightAndAverage> averages;
  averages.reserve(average_minus_weight_.size());
  for (std::size_t i = 0; i < average_minus_weight_.size(); ++i)
    averages.push_back({parameters_[i], parameters_[i] + average_minus_weight_[i]});
  return averages;
}

std::vector<at::Tensor> Optimizer::AddState(std::string_view prefix,
                                            const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& parameter : parameters) {
    tensors.push_back(given_.empty()
                          ? at::zeros_like(parameter.tensor, at::MemoryFormat::Preserve).requires_grad_(false)
                          : given_.at(state_.size()));
    state_.push_back({std::string(prefix) + parameter.name, tensors.back()});
  }
  return tensors;
}

std::vector<ParameterSettings> SettingsOf(const api::OptimizerSpec& spec,
                                          const std::vector<NamedTensor>& parameters) {
  std::vector<ParameterSettings> settings;
  settings.reserve(parameters.size());
  for (const NamedTensor& parameter : parameters) settings.push_back(SettingsOf(spec, parameter));
  return settings;
}

std::vector<std::string> SlotPrefixes(const api::OptimizerSpec& spec) {
  // A parameter without a name reveals them.
  const auto sample = MakeOptimizer(spec, {{"", at::zeros({1})}});
  std::vector<std::string> prefixes;
  for (const NamedTensor& slot : sample->state()) prefixes.push_back(slot.name);
  return prefixes;
}

std::unique_ptr<Optimizer> MakeOptimizer(const api::OptimizerSpec& spec,
                                         const std::vector<NamedTensor>& parameters,
                                         std::vector<at::Tensor> state,
                                         std::vector<ParameterSettings> settings) {
  if (settings.empty()) settings = SettingsOf(spec, parameters);
  if (spec.name == api::OptimizerName::kSgd)
    return std::make_unique<Sgd>(spec, parameters, std::move(state), settings);
  return std::make_unique<Adam>(spec, parameters, std::move(state), settings);
}

}  // namespace lockstep::train
