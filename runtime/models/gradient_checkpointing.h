#pragma once
// spec.training.gradientCheckpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016): a
// layer keeps only its input in the forward pass, and is computed again in the backward pass. So at any time
// the activations of one layer are in memory, at the cost of a second forward pass.
//
// The seam is Model::Layers(): strategies call the layers of the model that they are given, and need no code
// of their own. A strategy that acts before and after a layer (for example, collects its parameters) acts
// both around the layer's forward function and before its gradient arrives in the backward pass; the layer is
// computed again between these two.
//
// The second computation gives the same bits: it has the random numbers, the autocast and the buffers (for
// example running statistics) of the first, and leaves the buffers as the first computation set them. Random
// numbers must come from the generator of the device of the layer's input. The layer's parameters
// (Layer::modules) are inputs of its node in the graph, so their gradients are complete when they arrive,
// also where several layers share a parameter. LibTorch's exceptions pass through.

#include <memory>

#include "runtime/common/base/result.h"
#include "runtime/sdk/lockstep/model.h"

namespace lockstep::models {

// The same model with layers that are computed again. It has the parameters and buffers of `model`, with
// their names. kInvalidArgument if the model has no layers, or has a trained parameter outside of them.
[[nodiscard]] Result<std::shared_ptr<Model>> WithGradientCheckpointing(std::shared_ptr<Model> model);

}  // namespace lockstep::models
