#pragma once
// No communication: every rank keeps the gradients of its own samples, as between two averages of localsgd or
// async, or in a world of one.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// kInvalidArgument if there is nothing to train.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeLocalGradients(std::vector<at::Tensor> parameters);

}  // namespace lockstep::parallel
