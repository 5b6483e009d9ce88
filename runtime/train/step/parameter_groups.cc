#include "runtime/train/step/parameter_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/common/base/strings.h"
#include "runtime/common/base/suggestion.h"

namespace lockstep::train {
namespace {

constexpr std::size_t kNamesShown = 8;

bool Matches(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

// Null: no group has the parameter.
const api::ParameterGroupSpec* GroupOf(const api::OptimizerSpec& spec, const std::string& name) {
  for (const api::ParameterGroupSpec& group : spec.groups) {
    const auto matches = [&](const std::string& pattern) { return Matches(pattern, name); };
    if (std::any_of(group.match.begin(), group.match.end(), matches)) return &group;
  }
  return nullptr;
}

Error MatchesNothing(const std::string& field, const std::string& pattern,
                     const std::vector<std::string>& names) {
  const auto shown = static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesShown));
  std::string some = Join({names.begin(), names.begin() + shown}, ", ");
  if (names.size() > kNamesShown) some += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return {ErrorCode::kInvalidArgument, field + ": no parameter of the model matches \"" + pattern + "\"" +
                                           DidYouMean(pattern, names) + " (the model has " + some + ")"};
}

}  // namespace

ParameterSettings SettingsOf(const api::OptimizerSpec& spec, const checkpoint::NamedTensor& parameter) {
  const bool decays = spec.weight_decay_on == api::WeightDecayOn::kAll || parameter.tensor.dim() >= 2;
  const bool is_matrix = parameter.tensor.dim() == 2;  // what Muon is defined for
  ParameterSettings settings{.weight_decay = decays ? spec.weight_decay : 0,
                             .use_muon = spec.name == api::OptimizerName::kMuon && is_matrix};
  if (const api::ParameterGroupSpec* group = GroupOf(spec, parameter.name)) {
    settings.weight_decay = group->weight_decay.value_or(settings.weight_decay);
    settings.learning_rate_scale = group->learning_rate_scale;
    settings.use_muon = settings.use_muon && group->use_muon;
  }
  return settings;
}

Result<void> Freeze(const api::OptimizerSpec& spec, torch::nn::Module& model) {
  const std::string field = "spec.training.optimizer.groups";
  auto parameters = model.named_parameters();
  const std::vector<std::string> names = parameters.keys();
  for (std::size_t i = 0; i < spec.groups.size(); ++i) {
    for (std::size_t j = 0; j < spec.groups[i].match.size(); ++j) {
      const std::string& pattern = spec.groups[i].match[j];
      if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return Matches(pattern, name); }))
        continue;
      return MatchesNothing(field + "[" + std::to_string(i) + "].match[" + std::to_string(j) + "]", pattern,
                            names);
    }
  }
  bool any_trained = spec.groups.empty();  // else a model without parameters is reported elsewhere
  for (auto& parameter : parameters) {
    const api::ParameterGroupSpec* group = GroupOf(spec, parameter.key());
    if (group != nullptr && group->frozen) parameter.value().set_requires_grad(false);
    any_trained = any_trained || parameter.value().requires_grad();
  }
  if (any_trained) return {};
  return Error{ErrorCode::kInvalidArgument, field +
                                                ": all parameters of the model are frozen; leave at "
                                                "least one to train"};
}

}  // namespace lockstep::train
