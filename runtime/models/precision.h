#pragma once
// The number format of a forward pass: PyTorch's autocast. Parameters, gradients and the optimizer state
// remain float32.

#include <c10/core/DeviceType.h>

#include "runtime/common/api/training_spec.h"

namespace lockstep::models {

// Applies to the calling thread until it goes out of scope. kBf16 and kFp16: matrix products and convolutions
// use that format, and operations that need the precision use float32, according to ATen's lists. kFp32: no
// effect.
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

// The format that applies to the calling thread.
[[nodiscard]] api::Precision PrecisionOf(c10::DeviceType device);

// Sets for the whole process whether GPUs may use TF32 in float32 matrix products and convolutions.
void AllowTf32(bool allowed);

}  // namespace lockstep::models
