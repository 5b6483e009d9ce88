#pragma once
// The models a manifest can name: single-device code, unaware of parallelism. A model maps inputs to one
// value per class; the loss is a SUM over samples, because only the sum over all ranks knows the number to
// divide by. One thread.

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"

namespace lockstep::models {

class Model : public torch::nn::Module {
 public:
  [[nodiscard]] virtual at::Tensor Forward(const at::Tensor& inputs) = 0;
};

struct ModelInput {
  std::vector<int64_t> sample_shape;  // of the data set, without the batch dimension
  int64_t classes = 0;
};

// Initialised from `seed` alone: the same numbers in every process. Names of parameters are PyTorch's
// ("conv1.weight"). shared_ptr because torch::nn::Module registers its children that way. The error names the
// field.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeModel(const api::ModelSpec& spec, const ModelInput& input,
                                                       int64_t seed);

struct LossSums {
  at::Tensor loss;  // scalar, sum over samples, differentiable
  int64_t correct = 0;
  int64_t count = 0;
};

// Cross-entropy of class indices.
[[nodiscard]] LossSums ClassificationLoss(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace lockstep::models
