#pragma once
// The weighted mean of tensors over the ranks of a round, in a few large sums. Step thread.

#include <ATen/core/Tensor.h>

#include <span>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

struct ToAverage {
  at::Tensor tensor;
  // The value that all ranks had in common before. If it is given, only the difference is sent, which loses
  // fewer bits in rounding. Undefined: the values themselves are sent, so a mean of positive numbers is
  // positive.
  at::Tensor origin;
};

// Afterwards the tensors are equal on all ranks, bit for bit. The weights of all ranks sum to 1. Integer
// tensors have no mean: all ranks get those of rank 0. After an error some tensors may have changed and
// others not.
[[nodiscard]] Result<void> AverageInPlace(comm::Communicator& communicator,
                                          std::span<const ToAverage> tensors, double weight);

}  // namespace lockstep::train
