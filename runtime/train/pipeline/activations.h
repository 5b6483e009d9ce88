#pragma once
// Sends and receives the tensors between the stages of a pipeline. A small header with type and shape
// precedes each tensor, because the receiver does not know them. Step thread. kAborted: the round broke.

#include <ATen/core/Tensor.h>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

[[nodiscard]] Result<void> SendActivation(comm::Communicator& communicator, const at::Tensor& tensor,
                                          int peer);
// Announces that no tensor will follow.
[[nodiscard]] Result<void> SendNoActivation(comm::Communicator& communicator, int peer);
// Returns an undefined tensor if none follows.
[[nodiscard]] Result<at::Tensor> ReceiveActivation(comm::Communicator& communicator, at::Device device,
                                                   int peer);

}  // namespace lockstep::train
