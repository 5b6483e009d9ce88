#pragma once
// How the ranks of a round compute and sum the gradients of a step. The step thread calls it. It is created
// for one round.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "runtime/common/base/result.h"

namespace lockstep::parallel {

class Strategy {
 public:
  virtual ~Strategy() = default;

  // Every rank of the round calls it before a step's first forward pass. Gradients are zero or undefined
  // afterwards. `micro_batches[r]` is the number of micro-batches of rank r; the first ones of the step are
  // rank 0's, and so on.
  [[nodiscard]] virtual Result<void> BeginStep(std::span<const int64_t> micro_batches) = 0;

  // Adds the gradient of `loss_sum`, a sum over samples, to this rank's gradient of the step. With `last`,
  // the gradients of all ranks are summed, too. kAborted: the round broke. kInternal: the pass itself failed.
  [[nodiscard]] virtual Result<void> Backward(const at::Tensor& loss_sum, bool last) = 0;

  // Backward(…, last) for a rank without samples in this step: it must still participate in the sum.
  [[nodiscard]] virtual Result<void> BackwardOfNothing() = 0;

  // Called after Backward or BackwardOfNothing with `last`: blocks until the sum is known to be good on this
  // machine. Then every parameter's gradient is the sum over the global batch, with the same bits on each
  // rank. kAborted: the round broke. Not called if a device's graph recorded the pass (comm/device_graph.h),
  // because the replay is waited for as a whole.
  [[nodiscard]] virtual Result<void> AwaitSum() { return {}; }

  // In the last step: seconds that this rank waited for the sum after its own part was done.
  [[nodiscard]] virtual double exposed_seconds() const = 0;
};

}  // namespace lockstep::parallel
