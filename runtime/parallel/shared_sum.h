#pragma once
// The sum of tensors that some of the round's ranks hold, each of them other ones: the gradients of a model
// whose layers are divided over the ranks. Like an all-reduce among the holders of each tensor, but over the
// round's own group, so an abort reaches it, and all tensors travel in two messages. Step thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"

namespace lockstep::parallel {

struct SharedTensor {
  at::Tensor tensor;  // contiguous, of one type for all; undefined where this rank is no holder
  int64_t elements = 0;
  std::vector<int> holders;  // ranks, ascending
};

// On all ranks of the round, which pass the same list; those that hold nothing, too. In place; each holder
// has the same bits afterwards. Nothing is sent where no tensor has two holders. `options` are those of the
// tensors.
[[nodiscard]] Result<void> SumOverHolders(comm::Communicator& communicator,
                                          const std::vector<SharedTensor>& tensors,
                                          const at::TensorOptions& options);

}  // namespace lockstep::parallel
