#pragma once
// The sum of the losses of several micro-batches. It remains on the device until it is read, so that the host
// does not wait for a forward pass before it queues what follows. Step thread; throws LibTorch's exceptions.

#include <ATen/core/Tensor.h>

namespace lockstep::train {

class LossTotal {
 public:
  // A scalar.
  void Add(const at::Tensor& loss);
  // Waits for the device. 0 if nothing was added.
  [[nodiscard]] double Read() const;

 private:
  at::Tensor sum_;  // float64
};

}  // namespace lockstep::train
