#pragma once
// One process on several devices, as torch.nn.DataParallel: each device has a replica of the parameters, and
// the optimizer updates those of the first one. A step begins by copying them to the others and ends with the
// sum of all gradients on the first.
//
// A backward pass from one loss reaches all replicas; LibTorch runs the part of each GPU in its own thread.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// `replicas[d]` has the parameters on device d, in the same order on each, including those that are not
// trained. kInvalidArgument if there is nothing to train.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeReplicaGradients(
    std::vector<std::vector<at::Tensor>> replicas);

}  // namespace lockstep::parallel
