#pragma once
// Parameters that an optimizer treats alike, so that one call of a kernel can update all of them. For the
// optimizers of this folder. Values.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "runtime/train/step/parameter_groups.h"

namespace lockstep::train {

// Parameters with equal settings, by index.
struct SameSettings {
  ParameterSettings settings;
  std::vector<std::size_t> members;

  // Their entries in a list for all parameters; nothing if that list is empty.
  [[nodiscard]] std::vector<at::Tensor> Of(const std::vector<at::Tensor>& all) const;
};

[[nodiscard]] std::vector<SameSettings> GroupsOf(const std::vector<ParameterSettings>& settings);

[[nodiscard]] std::vector<at::Tensor> GradientsOf(const std::vector<at::Tensor>& parameters);

}  // namespace lockstep::train
