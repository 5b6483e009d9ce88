#pragma once
// Tensors that some ranks have, to all. Step thread.

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

struct FromRank {
  at::Tensor target;    // on every rank
  int root = 0;         // the rank that has it
  at::Tensor source{};  // there; it may be on another device, or be the target itself
};

// On all ranks together; targets and roots agree. The targets are changed only when everything has arrived,
// so a root that dies half-way costs nobody what he holds. They travel as a few large tensors.
[[nodiscard]] Result<void> BroadcastTensors(comm::Communicator& communicator,
                                            const std::vector<FromRank>& tensors);

}  // namespace lockstep::train
