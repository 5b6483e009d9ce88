#pragma once
// The number format of a forward pass: PyTorch's autocast. Parameters, gradients and the optimizer stay
// float32.

#include <c10/core/DeviceType.h>

#include "runtime/common/api/training_spec.h"

namespace lockstep::models {

// Of the calling thread, until it goes out of scope. kBf16 and kFp16: matrix products and convolutions in
// that format, what loses by it in float32, by ATen's lists. kFp32: nothing changes.
class Autocast {
 public:
  Autocast(api::Precision precision, c10::DeviceType device);
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
  ~Autocast();

 private:
  const bool is_on_;
  const c10::DeviceType device_;
};

// Of the process: whether GPUs may multiply float32 as TF32, in matrix products and convolutions.
void AllowTf32(bool allowed);

}  // namespace lockstep::models
