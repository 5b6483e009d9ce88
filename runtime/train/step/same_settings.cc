#include "runtime/train/step/same_settings.h"

#include <algorithm>

namespace lockstep::train {

std::vector<at::Tensor> SameSettings::Of(const std::vector<at::Tensor>& all) const {
  std::vector<at::Tensor> mine;
  if (all.empty()) return mine;  // a state slot that this optimizer does not have
  mine.reserve(members.size());
  for (const std::size_t member : members) mine.push_back(all[member]);
  return mine;
}

std::vector<SameSettings> GroupsOf(const std::vector<ParameterSettings>& settings,
                                   const std::vector<at::Tensor>& parameters) {
  std::vector<SameSettings> groups;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const at::Device device = parameters[i].device();
    auto group = std::find_if(groups.begin(), groups.end(), [&](const SameSettings& each) {
      return each.settings == settings[i] && each.device == device;
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {settings[i], device});
    group->members.push_back(i);
  }
  return groups;
}

std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> gradients;
  gradients.reserve(parameters.size());
  for (const at::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

}  // namespace lockstep::train
