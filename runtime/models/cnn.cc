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

std::vector<Layer> Cnn::Layers() {
  std::vector<Layer> layers;
  for (torch::nn::Conv2d& convolution : convolutions_) {
    const auto forward = [convolution = convolution.get()](const at::Tensor& inputs) {
      return at::max_pool2d(convolution->forward(ChannelsLast(inputs)).relu_(), {2, 2});
    };
    layers.push_back({forward, {convolution.ptr()}});
  }
  const auto hidden = [this](const at::Tensor& inputs) {
    return dropout_->forward(hidden_->forward(inputs.flatten(1)).relu_());
  };
  layers.push_back({hidden, {hidden_.ptr()}});
  layers.push_back({[this](const at::Tensor& inputs) { return output_->forward(inputs); }, {output_.ptr()}});
  return layers;
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
