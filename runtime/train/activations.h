#pragma once
// Tensors between the stages of a pipeline, whose shapes the receiver does not know: a few numbers first.
// Step thread.

#include <ATen/core/Tensor.h>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

[[nodiscard]] Result<void> SendActivation(comm::Communicator& communicator, const at::Tensor& tensor,
                                          int peer);
// Says that none will follow.
[[nodiscard]] Result<void> SendNoActivation(comm::Communicator& communicator, int peer);
// Undefined where none follows.
[[nodiscard]] Result<at::Tensor> ReceiveActivation(comm::Communicator& communicator, at::Device device,
                                                   int peer);

}  // namespace lockstep::train
