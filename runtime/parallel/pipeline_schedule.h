#pragma once
// The order of operations of a pipeline stage in a step: one forward, one backward (Narayanan et al.,
// "PipeDream", 2019, with the flush of "Memory-Efficient Pipeline-Parallel DNN Training", 2021). A stage
// keeps the activations of at most `stages - stage` micro-batches, however many there are. Pure.

#include <vector>

namespace lockstep::parallel {

enum class PipelineAction {
  kReceiveActivation,  // from the stage before
  kForward,
  kSendActivation,
  kReceiveGradient,  // from the stage after
  kBackward,
  kSendGradient,
};

struct PipelineMove {
  PipelineAction action;
  int micro_batch;

  friend bool operator==(const PipelineMove&, const PipelineMove&) = default;
};

// Sends may block until the other side receives. If two stages send to each other, the even one sends first,
// which avoids a deadlock.
[[nodiscard]] std::vector<PipelineMove> OneForwardOneBackward(int stage, int stages, int micro_batches);

}  // namespace lockstep::parallel
