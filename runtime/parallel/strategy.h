#pragma once
// How the ranks of a round share the work of one step. The step thread calls it; it is made for a round and
// dropped with it.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/common/base/result.h"

namespace lockstep::parallel {

class Strategy {
 public:
  virtual ~Strategy() = default;

  // Gradients are zero or undefined then. Every rank of the round calls it before a step's first forward.
  // `micro_batches[r]` is how many rank r takes: the step's first ones are rank 0's, and so on.
  [[nodiscard]] virtual Result<void> BeginStep(std::span<const int64_t> micro_batches) = 0;

  // Adds the gradient of `loss_sum`, a sum over samples, to what this rank has gathered in this step. With
  // `last`, the gradients of all ranks are summed, too. kAborted: the round broke; kInternal: the pass itself
  // failed.
  [[nodiscard]] virtual Result<void> Backward(const at::Tensor& loss_sum, bool last) = 0;

  // Backward(…, last) for a rank that has no sample in this step: it must take part in the sum all the same.
  [[nodiscard]] virtual Result<void> BackwardOfNothing() = 0;

  // After either of them with `last`, until the sum is known to be good on this machine: every parameter's
  // gradient is then the sum over the global batch, the same bits on each rank. kAborted as above. Not where
  // a device's graph recorded the pass (comm/device_graph.h): who replays it waits for the whole of it.
  [[nodiscard]] virtual Result<void> AwaitSum() { return {}; }

  // Of the last step: seconds after this rank's own part was done, waiting for the sum.
  [[nodiscard]] virtual double exposed_seconds() const = 0;
};

}  // namespace lockstep::parallel
