#include "runtime/train/step/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>

#include <utility>

#include "runtime/checkpoint/manifest.h"
#include "runtime/train/step/adam.h"
#include "runtime/train/step/lamb.h"
#include "runtime/train/step/muon.h"
#include "runtime/train/step/sgd.h"

namespace lockstep::train {
namespace {

std::vector<at::Tensor> TensorsOf(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(named.size());
  for (const NamedTensor& entry : named) tensors.push_back(entry.tensor);
  return tensors;
}

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
  switch (spec.name) {
    case api::OptimizerName::kSgd: return std::make_unique<Sgd>(spec, parameters, std::move(state), settings);
    case api::OptimizerName::kAdam:
    case api::OptimizerName::kAdamw:
      return std::make_unique<Adam>(spec, parameters, std::move(state), settings);
    case api::OptimizerName::kLamb:
      return std::make_unique<Lamb>(spec, parameters, std::move(state), settings);
    case api::OptimizerName::kMuon:
      return std::make_unique<Muon>(spec, parameters, std::move(state), settings);
  }
  return nullptr;  // unreachable
}

}  // namespace lockstep::train
