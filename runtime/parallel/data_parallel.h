#pragma once
// Replicated data parallelism with c10d's Reducer (the engine of PyTorch's DistributedDataParallel), its
// buckets and its overlap of communication and backward pass. The Reducer divides by the number of ranks,
// which is wrong for uneven shares; here gradients are summed, and the step divides once by the global count.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// The format in which gradients are communicated: float32, or a 16-bit type to which the sum is rounded.
struct GradientFormat {
  at::ScalarType type = at::kFloat;  // or kBFloat16, kHalf
  double samples = 1;  // of a step; gradients are divided by it before a sum that could exceed kHalf's range
};

// Takes over the gradients of `parameters` (they become views of communication buckets) until it is
// destroyed. All ranks must hold equal parameters. kInvalidArgument: there is nothing to train. kAborted: the
// round broke.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeDataParallel(
    std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters,
    GradientFormat format = {});

}  // namespace lockstep::parallel
