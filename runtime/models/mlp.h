#pragma once
// Fully connected layers with ReLU between them.

#include <torch/nn/modules/linear.h>

#include "runtime/models/model.h"

namespace lockstep::models {

class Mlp final : public Model {
 public:
  Mlp(const api::MlpSpec& spec, const ModelInput& input);
  [[nodiscard]] std::vector<Layer> Layers() override;

 private:
  std::vector<torch::nn::Linear> layers_;  // fc1, fc2, …
};

}  // namespace lockstep::models
