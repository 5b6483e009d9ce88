#pragma once
// How images lie in memory while a model works on them.

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace lockstep::models {

// The channels of a pixel side by side, which every convolution, norm and pooling then passes on.
inline at::Tensor ToChannelsLast(const at::Tensor& images) {
  return images.to(images.options(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
}

// Where a GPU computes in half precision: its tensor cores want them so, and cuDNN would turn the images
// round at each layer (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html). In
// float32 it chooses for itself.
inline at::Tensor ForTensorCores(const at::Tensor& images) {
  const bool in_half = !images.is_cpu() && at::autocast::is_autocast_enabled(images.device().type());
  return in_half ? ToChannelsLast(images) : images;
}

// On CPUs, too: a step of a small network needs a quarter less time than with whole planes, which oneDNN
// takes apart and puts together at each layer.
inline at::Tensor ChannelsLast(const at::Tensor& images) {
  return images.is_cpu() ? ToChannelsLast(images) : ForTensorCores(images);
}

}  // namespace lockstep::models
