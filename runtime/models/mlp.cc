#include "runtime/models/mlp.h"

#include <torch/torch.h>

namespace lockstep::models {

Mlp::Mlp(const api::MlpSpec& spec, const ModelInput& input) {
  int64_t width = 1;
  for (const int64_t extent : input.sample_shape) width *= extent;
  std::vector<int64_t> sizes = spec.hidden_sizes;
  sizes.push_back(input.classes);
  for (const int64_t size : sizes) {
    const std::string name = "fc" + std::to_string(layers_.size() + 1);
    layers_.push_back(register_module(name, torch::nn::Linear(width, size)));
    width = size;
  }
}

at::Tensor Mlp::Forward(const at::Tensor& inputs) {
  at::Tensor x = inputs.flatten(1);
  for (std::size_t i = 0; i + 1 < layers_.size(); ++i) x = layers_[i]->forward(x).relu_();
  return layers_.back()->forward(x);
}

}  // namespace lockstep::models
