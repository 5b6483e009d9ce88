#pragma once
// CUDA graphs behind the interface of runtime/comm/device_graph.h. Exceptions are LibTorch's.

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>

#include "runtime/comm/device_graph.h"

namespace lockstep::cuda {

// Of the calling thread's stream, which is not the default one. Graphs of one pool are replayed in the order
// in which they were recorded: what is temporary in one may lie where it did in another.
[[nodiscard]] std::unique_ptr<comm::DeviceGraph> NewCudaGraph(c10::MempoolId_t pool);

}  // namespace lockstep::cuda
