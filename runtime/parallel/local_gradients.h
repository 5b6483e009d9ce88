#pragma once
// No sharing at all: every rank keeps the gradients of its own samples, as between two averages of localsgd
// or async, or where it is alone.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// kInvalidArgument where there is nothing to train.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeLocalGradients(std::vector<at::Tensor> parameters);

}  // namespace lockstep::parallel
