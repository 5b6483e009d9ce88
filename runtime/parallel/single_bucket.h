#pragma once
// Replicated data parallelism of a small model: its whole gradient is one message, and the step's sums are in
// it. Nothing overlaps with the backward pass, but there is one all-reduce in a step, where buckets and sums
// of their own are two or three; for small messages their number is what counts.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/parallel/strategy.h"

namespace lockstep::parallel {

// Beyond it, sending while the pass goes on saves more than fewer messages do (tests/bench/README.md).
inline constexpr int64_t kSingleBucketBytes = int64_t{4} << 20;

// Where all are float32 on the CPU, and not too large.
[[nodiscard]] bool FitSingleBucket(const std::vector<at::Tensor>& parameters);

// Takes over the gradients of `parameters` until it is destroyed. All ranks must hold equal parameters, that
// fit. kInvalidArgument where there is nothing to train.
[[nodiscard]] Result<std::unique_ptr<Strategy>> MakeSingleBucket(
    std::shared_ptr<comm::Communicator> communicator, std::vector<at::Tensor> parameters);

}  // namespace lockstep::parallel
