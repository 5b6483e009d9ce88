#pragma once
// A graph of the CPU, for ranks without a GPU: the operators that were called are kept, with their tensors,
// and called again. As with a CUDA graph, what the host does between them is not part of it, results come to
// the same memory, and reading a value while it is recorded fails.

#include <memory>

#include "runtime/comm/device_graph.h"

namespace lockstep::testing {

[[nodiscard]] std::unique_ptr<comm::DeviceGraph> NewRecordedGraph();

}  // namespace lockstep::testing
