#pragma once
// One process on several devices, as torch.nn.DataParallel: each device has a replica of the parameters, and
// the first one's are those that the optimizer knows. A step begins with copies of them on the others and
// ends with the sum of all gradients on the first.
//
// A backward pass from one loss reaches all replicas; LibTorch runs the part of each GPU in a thread of its
// own.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// `replicas[d]`: the parameters on device d, in the same order on each, also those that are not trained.
// kInvalidArgument where there is nothing to train.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeReplicaGradients(
    std::vector<std::vector<at::Tensor>> replicas);

}  // namespace lockstep::parallel
