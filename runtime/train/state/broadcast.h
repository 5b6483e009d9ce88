#pragma once
// Sends tensors from the ranks that have them to all ranks, in chunks. A rank needs memory for one additional
// chunk, whatever the size of the tensors. Step thread.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

struct FromRank {
  at::Tensor target;    // exists on every rank; contiguous
  int root = 0;         // the rank that has it
  at::Tensor source{};  // on the root only; it may be on another device, or be the target itself
};

// What this rank does with a chunk that arrives.
enum class Receiving {
  kInPlace,  // Writes it to the targets. After an error they hold a mixture of old and new values.
  kStaged,   // Keeps it in host memory, and writes all targets after the last chunk has arrived.
  kScratch,  // Drops it, because the targets already hold the same bits.
};

// The maximum size of a chunk.
inline constexpr int64_t kBroadcastChunkBytes = int64_t{16} << 20;

// All ranks call this together with the same targets and roots; `receiving` may differ between ranks.
// `before_writing` is called before the first write to a target, and not called if nothing is written.
// kAborted: the round broke. kInternal: LibTorch failed, for example for lack of memory.
[[nodiscard]] Result<void> BroadcastTensors(
    comm::Communicator& communicator, const std::vector<FromRank>& tensors, Receiving receiving,
    const std::function<void()>& before_writing = [] {});

}  // namespace lockstep::train
