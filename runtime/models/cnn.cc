#include "runtime/models/cnn.h"

#include <torch/torch.h>

#include "runtime/models/channels_last.h"

namespace lockstep::models {

Cnn::Cnn(const api::CnnSpec& spec, const ModelInput& input, int64_t side_features)
    : dropout_(register_module("dropout", torch::nn::Dropout(spec.dropout))) {
  int64_t channels = input.sample_shape.front();
  for (const int64_t next : spec.channels) {
    const std::string name = "conv" + std::to_string(convolutions_.size() + 1);
    const auto options = torch::nn::Conv2dOptions(channels, next, 3).padding(1);
    convolutions_.push_back(register_module(name, torch::nn::Conv2d(options)));
    channels = next;
  }
  hidden_ = register_module("fc1", torch::nn::Linear(channels * side_features, spec.hidden_size));
  output_ = register_module("fc2", torch::nn::Linear(spec.hidden_size, input.classes));
}

at::Tensor Cnn::Forward(const at::Tensor& inputs) {
  at::Tensor x = ChannelsLast(inputs);
  for (auto& convolution : convolutions_) x = at::max_pool2d(convolution->forward(x).relu_(), {2, 2});
  x = hidden_->forward(x.flatten(1)).relu_();
  return output_->forward(dropout_->forward(x));
}

Result<std::shared_ptr<Model>> MakeCnn(const api::CnnSpec& spec, const ModelInput& input) {
  const std::size_t poolings = spec.channels.size();
  const auto& shape = input.sample_shape;
  const auto pooled = [&](int64_t side) { return poolings < 63 ? side >> poolings : 0; };
  if (shape.size() != 3 || pooled(shape[1]) == 0 || pooled(shape[2]) == 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "spec.training.model.cnn.channels: " + std::to_string(poolings) +
                     " poolings, each of which halves the sides, need images [channels, height, width] of at "
                     "least 2^" +
                     std::to_string(poolings) + " pixels a side; use fewer channels entries, or the mlp"};
  }
  const int64_t side_features = pooled(shape[1]) * pooled(shape[2]);
  return std::shared_ptr<Model>(std::make_shared<Cnn>(spec, input, side_features));
}

}  // namespace lockstep::models
