#pragma once
// How images lie in memory while a model works on them.

#include <ATen/core/Tensor.h>

namespace lockstep::models {

// The channels of a pixel side by side, which every convolution and pooling then passes on: on CPUs a step of
// a small network needs a quarter less time than with whole planes, which oneDNN takes apart and puts
// together at each layer. A device's own libraries choose for themselves.
inline at::Tensor ChannelsLast(const at::Tensor& images) {
  if (!images.is_cpu()) return images;
  return images.to(images.options(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
}

}  // namespace lockstep::models
