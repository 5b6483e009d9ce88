#pragma once
// Sends tensors that some ranks have to all ranks, in chunks: whatever their size, a rank needs memory for one
// chunk more. Step thread.

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "runtime/comm/communicator.h"

namespace lockstep::train {

struct FromRank {
  at::Tensor target;    // on every rank; contiguous
  int root = 0;         // the rank that has it
  at::Tensor source{};  // there; it may be on another device, or be the target itself
};

// What this rank does with a chunk that arrived.
enum class Receiving {
  kInPlace,  // Writes it to the targets. After an error they hold a mixture.
  kStaged,   // Keeps it in host memory, and writes all of them to the targets when the last one has arrived.
  kScratch,  // Nothing: its targets hold the same bits.
};

// Most bytes of a chunk.
inline constexpr int64_t kBroadcastChunkBytes = int64_t{16} << 20;

// On all ranks together; targets and roots agree, how a rank receives is its own choice. `before_writing` is
// called before the first write to a target, and not where nothing is written. kAborted: the round broke;
// kInternal: LibTorch failed, for example for lack of memory.
[[nodiscard]] Result<void> BroadcastTensors(
    comm::Communicator& communicator, const std::vector<FromRank>& tensors, Receiving receiving,
    const std::function<void()>& before_writing = [] {});

}  // namespace lockstep::train
