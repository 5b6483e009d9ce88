#pragma once
// The memory format of images while a model works on them.

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace lockstep::models {

// The channels of a pixel are contiguous; convolutions, norms and poolings preserve this format.
inline at::Tensor ToChannelsLast(const at::Tensor& images) {
  return images.to(images.options(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
}

// For half precision on a GPU: tensor cores need this format, and cuDNN would otherwise convert at each layer
// (https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html). In float32 cuDNN chooses the
// format itself.
inline at::Tensor ForTensorCores(const at::Tensor& images) {
  const bool in_half = !images.is_cpu() && at::autocast::is_autocast_enabled(images.device().type());
  return in_half ? ToChannelsLast(images) : images;
}

// On CPUs, too: a step of a small network takes a quarter less time than with contiguous planes, which oneDNN
// converts at each layer.
inline at::Tensor ChannelsLast(const at::Tensor& images) {
  return images.is_cpu() ? ToChannelsLast(images) : ForTensorCores(images);
}

}  // namespace lockstep::models
