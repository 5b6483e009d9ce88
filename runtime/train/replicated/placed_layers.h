#pragma once
// strategy: modelparallel: the layers of a model on the devices of this process, neighbouring ones together, so
// that each device has about the same number of bytes of parameters. The output of a layer is copied to the
// device of the next one, and autograd copies gradients back. Layers that share a parameter are on one device,
// that of the first of them.
//
// Devices may be of any type that LibTorch supports, and one device may be given several times. Step thread;
// LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "runtime/common/base/result.h"
#include "runtime/models/model.h"

namespace lockstep::train {

// By index, the device of each layer. If there are fewer layers (or sets of layers that share parameters) than
// devices, the last devices get none.
[[nodiscard]] std::vector<std::size_t> DevicesOfLayers(const std::vector<Layer>& layers, std::size_t devices);
// The same for each parameter and buffer of the layers, by its unsafeGetTensorImpl().
[[nodiscard]] std::map<const void*, std::size_t> DevicesOfTensors(const std::vector<Layer>& layers,
                                                                  std::size_t devices);

// Moves the parameters and buffers of `model`. Returns the same model with layers that expect their inputs on
// any device; its outputs are on the device of the last layer. kInvalidArgument if the model has no layers, or
// has a parameter or buffer outside of them.
[[nodiscard]] Result<std::shared_ptr<Model>> PlaceLayers(std::shared_ptr<Model> model,
                                                         std::span<const at::Device> devices);

}  // namespace lockstep::train
