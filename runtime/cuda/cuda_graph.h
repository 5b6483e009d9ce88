#pragma once
// The CUDA implementation of runtime/comm/device_graph.h. Throws LibTorch's exceptions.

#include <c10/core/CachingDeviceAllocator.h>

#include <memory>

#include "runtime/comm/device_graph.h"

namespace lockstep::cuda {

// Creates a graph for the calling thread's stream, which must not be the default one. Graphs of one pool must
// be replayed in the order in which they were recorded, because they share memory for temporary tensors.
[[nodiscard]] std::unique_ptr<comm::DeviceGraph> NewCudaGraph(c10::MempoolId_t pool);

}  // namespace lockstep::cuda
