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

std::vector<Layer> Mlp::Layers() {
  std::vector<Layer> layers;
  for (torch::nn::Linear& linear : layers_) {
    const bool is_last = layers.size() + 1 == layers_.size();
    const auto forward = [linear = linear.get(), is_last](const at::Tensor& inputs) {
      const at::Tensor x = linear->forward(inputs.flatten(1));
      return is_last ? x : x.relu_();
    };
    layers.push_back({forward, {linear.ptr()}});
  }
  return layers;
}

}  // namespace lockstep::models
