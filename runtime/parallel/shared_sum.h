#pragma once
// The sum of tensors that are held by some of the round's ranks, with a different set of holders for each:
// the gradients of a model whose layers are divided over the ranks. It is an all-reduce among the holders of
// each tensor, but over the round's own group, so an abort reaches it, and all tensors are sent in two
// messages. Step thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/communicator.h"

namespace lockstep::parallel {

struct SharedTensor {
  at::Tensor tensor;  // contiguous, all of one type; undefined on ranks that do not hold it
  int64_t elements = 0;
  std::vector<int> holders;  // ranks, ascending
};

// All ranks of the round call this with the same list, including ranks that hold nothing. In place;
// afterwards all holders have the same bits. Nothing is sent if no tensor has two holders. `options` are
// those of the tensors.
[[nodiscard]] Result<void> SumOverHolders(comm::Communicator& communicator,
                                          const std::vector<SharedTensor>& tensors,
                                          const at::TensorOptions& options);

}  // namespace lockstep::parallel
