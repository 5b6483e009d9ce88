#pragma once
// A small convolutional network: for each entry of spec.channels a 3x3 convolution, ReLU and 2x2 max-pooling;
// then one hidden layer with ReLU and dropout, then one value per class.

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "runtime/models/model.h"

namespace lockstep::models {

class Cnn final : public Model {
 public:
  // `side_features` is height x width after the poolings.
  Cnn(const api::CnnSpec& spec, const ModelInput& input, int64_t side_features);
  [[nodiscard]] std::vector<Layer> Layers() override;

 private:
  std::vector<torch::nn::Conv2d> convolutions_;  // conv1, conv2, …
  torch::nn::Dropout dropout_;
  torch::nn::Linear hidden_ = nullptr;  // fc1
  torch::nn::Linear output_ = nullptr;  // fc2
};

// kInvalidArgument if samples are not images [channels, height, width], or too small for the number of
// poolings.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeCnn(const api::CnnSpec& spec, const ModelInput& input);

}  // namespace lockstep::models
