#include "runtime/train/step/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include <algorithm>
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
      : Optimizer(std::move(state)), spec_(spec) {
    const std::vector<at::Tensor> all = TensorsOf(parameters);
    std::vector<at::Tensor> momentum;
    if (spec.momentum != 0) momentum = AddState("momentum", parameters);
    for (const SameSettings& group : GroupsOf(settings))
      groups_.push_back({group.settings, group.Of(all), group.Of(momentum)});
  }

  void Step(int64_t, double learning_rate) override {
    const at::NoGradGuard no_grad;
    // With a buffer of zeros, the first step's momentum * 0 + gradient equals the value with which PyTorch
    // initialises the buffer.
    for (OfGroup& group : groups_) {
      at::_fused_sgd_(group.parameters, GradientsOf(group.parameters), group.momentum,
                      group.settings.weight_decay, spec_.momentum,
                      learning_rate * group.settings.learning_rate_scale,
                      /*dampening=*/0, spec_.nesterov, /*maximize=*/false, /*is_first_step=*/false);
    }
  }

 private:
  struct OfGroup {
    ParameterSettings settings;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> momentum;
  };

  const api::OptimizerSpec spec_;
  std::vector<OfGroup> groups_;
};

class Adam final : public Optimizer {
 public:
  Adam(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
       std::vector<at::Tensor> state, const std::vector<ParameterSettings>& settings)
      : Optimizer(std::move(state)), spec_(spec) {
    const std::vector<at::Tensor> all = TensorsOf(parameters);
    const std::vector<at::Tensor> mean = AddState("exp_avg", parameters);
    const std::vector<at::Tensor> square = AddState("exp_avg_sq", parameters);
    for (const SameSettings& group : GroupsOf(settings))
      groups_.push_back({group.settings, group.Of(all), group.Of(mean), group.Of(square)});
  }

  void Step(int64_t step, double learning_rate) override {
    const at::NoGradGuard no_grad;
    for (OfGroup& group : groups_) Update(group, step, learning_rate * group.settings.learning_rate_scale);
  }

 private:
  struct OfGroup {
    ParameterSettings settings;
    std::vector<at::Tensor> parameters;
    std::vector<at::Tensor> mean;
    std::vector<at::Tensor> square;
  };

  void Update(OfGroup& group, int64_t step, double learning_rate) const {
    const std::vector<at::Tensor> gradients = GradientsOf(group.parameters);
    // The kernel's bias correction uses the number of updates: here the number of steps including this one,
    // and including skipped steps.
    const std::vector<at::Tensor> counts(
        gradients.size(), at::full({}, step + 1, group.parameters.front().options().dtype(at::kFloat)));
    if (spec_.name == api::OptimizerName::kAdamw) {
      at::_fused_adamw_(group.parameters, gradients, group.mean, group.square, {}, counts, learning_rate,
                        spec_.beta1, spec_.beta2, group.settings.weight_decay, spec_.epsilon,
                        /*amsgrad=*/false, /*maximize=*/false);
    } else {
      at::_fused_adam_(group.parameters, gradients, group.mean, group.square, {}, counts, learning_rate,
                       spec_.beta1, spec_.beta2, group.settings.weight_decay, spec_.epsilon,
                       /*amsgrad=*/false, /*maximize=*/false);
    }
  }

  const api::OptimizerSpec spec_;
  std::vector<OfGroup> groups_;
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
