#pragma once
// How the parameters of a model are divided into units. A unit is what is gathered at once: the parameters that
// one layer alone uses, or all those that several layers use.
//
// With precision bf16 or fp16, the weights and biases of linear layers and convolutions form units of their own,
// which are gathered in that format: autocast would cast them to it anyway, with the same result, and autograd
// would keep the casts of the whole model until the backward pass. All other parameters (norms, embeddings, and
// what such a module shares with a linear layer) remain float32.

#include <torch/nn/module.h>

#include <cstddef>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/models/model.h"
#include "runtime/train/shards/held_shards.h"

namespace lockstep::train {

struct Unit {
  Range range{};                     // of all elements
  std::size_t first = 0;             // of its parameters
  std::size_t count = 0;             // parameters
  at::ScalarType type = at::kFloat;  // in which they are gathered and used
};

using UnitNumbers = std::vector<std::size_t>;

struct Units {
  std::vector<Layer> layers;
  std::vector<NamedTensor> parameters;  // that are trained, unit after unit
  std::vector<Unit> all;
  std::vector<UnitNumbers> of_layer;  // of what a layer alone uses
  UnitNumbers shared;                 // of what several layers use
};

// kInvalidArgument if the model cannot be divided.
[[nodiscard]] Result<Units> DivideIntoUnits(const api::TrainingSpec& spec, Model& model);

}  // namespace lockstep::train
