#pragma once
// The weighted mean of tensors over the ranks of a round, in a few large sums. Step thread.

#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

struct ToAverage {
  at::Tensor tensor;
  // Where all ranks' tensors were equal: then only what changed since is sent, which costs fewer bits in
  // rounding. Undefined: the values themselves are sent, so that a mean of positive numbers is positive.
  at::Tensor origin;
};

// Afterwards the tensors are equal on all ranks, bit for bit. Weights of all ranks sum to 1. Of integers,
// which have no mean, all get rank 0's. After an error some may have been changed and others not.
[[nodiscard]] Result<void> AverageInPlace(comm::Communicator& communicator,
                                          std::span<const ToAverage> tensors, double weight);

}  // namespace lockstep::train
