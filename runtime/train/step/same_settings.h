#pragma once
// Parameters that an optimizer treats alike, so that one call of a kernel can update all of them. For the
// optimizers of this folder. Values.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "runtime/train/step/parameter_groups.h"

namespace lockstep::train {

// Parameters of one device with equal settings, by index.
struct SameSettings {
  ParameterSettings settings;
  at::Device device;
  std::vector<std::size_t> members{};

  // Their entries in a list for all parameters; nothing if that list is empty.
  [[nodiscard]] std::vector<at::Tensor> Of(const std::vector<at::Tensor>& all) const;
};

// One entry of `settings` for each parameter.
[[nodiscard]] std::vector<SameSettings> GroupsOf(const std::vector<ParameterSettings>& settings,
                                                 const std::vector<at::Tensor>& parameters);

[[nodiscard]] std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::train
