#include "runtime/train/fsdp/units.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <map>
#include <set>
#include <string>
#include <utility>

namespace lockstep::train {
namespace {

Error NotDivisible(const api::TrainingSpec& spec, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.strategy: fsdp cannot divide the model " +
                                           std::string(api::NameOf(spec.model.name)) + ", " + problem};
}

at::ScalarType TypeOf(api::Precision precision) {
  if (precision == api::Precision::kBf16) return at::kBFloat16;
  return precision == api::Precision::kFp16 ? at::kHalf : at::kFloat;
}

// Modules whose parameters autocast casts before their only operation.
bool IsCast(const torch::nn::Module& module) {
  return module.as<torch::nn::LinearImpl>() != nullptr || module.as<torch::nn::Conv1dImpl>() != nullptr ||
         module.as<torch::nn::Conv2dImpl>() != nullptr || module.as<torch::nn::Conv3dImpl>() != nullptr;
}

// What a module uses that autocast leaves in float32.
std::set<const void*> UsedInFloat(const Model& model) {
  std::set<const void*> used;
  for (const auto& module : model.modules()) {
    if (IsCast(*module)) continue;
    for (const at::Tensor& parameter : module->parameters(/*recurse=*/false))
      used.insert(parameter.unsafeGetTensorImpl());
  }
  return used;
}

// The layers that use each parameter.
std::map<const void*, std::vector<std::size_t>> UsersIn(const std::vector<Layer>& layers) {
  std::map<const void*, std::vector<std::size_t>> users;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const auto& module : layers[layer].modules) {
      for (const at::Tensor& parameter : module->parameters()) {
        std::vector<std::size_t>& of_this = users[parameter.unsafeGetTensorImpl()];
        if (of_this.empty() || of_this.back() != layer) of_this.push_back(layer);
      }
    }
  }
  return users;
}

}  // namespace

Result<Units> DivideIntoUnits(const api::TrainingSpec& spec, Model& model) {
  Units units{.layers = model.Layers()};
  const std::size_t layers = units.layers.size();
  if (layers == 0) {
    return NotDivisible(
        spec,
        "which does not say what its layers are: override lockstep::Model::Layers in a plugin, "
        "or use zero1");
  }
  const auto users = UsersIn(units.layers);
  const auto in_float = UsedInFloat(model);
  // By the layer, or their number for what several use, and by type.
  std::map<std::pair<std::size_t, at::ScalarType>, std::vector<NamedTensor>> divided;
  for (const auto& parameter : model.named_parameters()) {
    const void* const identity = parameter.value().unsafeGetTensorImpl();
    if (!parameter.value().requires_grad()) continue;
    const auto used = users.find(identity);
    if (used == users.end())
      return NotDivisible(spec, "whose " + parameter.key() + " is in none of its layers");
    if (parameter.value().scalar_type() != at::kFloat)
      return NotDivisible(spec, "whose " + parameter.key() + " is not float32");
    const std::size_t user = used->second.size() > 1 ? layers : used->second.front();
    const at::ScalarType type = in_float.contains(identity) ? at::kFloat : TypeOf(spec.precision);
    divided[{user, type}].push_back({parameter.key(), parameter.value()});
  }
  if (divided.empty()) return Error{ErrorCode::kInvalidArgument, "the model has no parameter to train"};
  units.of_layer.resize(layers);
  int64_t begin = 0;
  for (const auto& [key, parameters] : divided) {
    const auto& [user, type] = key;
    (user < layers ? units.of_layer[user] : units.shared).push_back(units.all.size());
    Unit& unit =
        units.all.emplace_back(Unit{{begin, begin}, units.parameters.size(), parameters.size(), type});
    for (const NamedTensor& parameter : parameters) unit.range.end += parameter.tensor.numel();
    begin = unit.range.end;
    units.parameters.insert(units.parameters.end(), parameters.begin(), parameters.end());
  }
  return units;
}

}  // namespace lockstep::train
