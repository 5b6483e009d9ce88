#pragma once
// Residual networks of 18 and 50 layers (He et al., "Deep Residual Learning for Image Recognition", 2016),
// with the stride in the 3x3 convolution of a bottleneck. Initialised and named as in torchvision, so its
// weights can be loaded.

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "runtime/models/model.h"

namespace lockstep::models {

enum class ResnetDepth { k18, k50 };

class Resnet final : public Model {
 public:
  Resnet(ResnetDepth depth, const api::ResnetSpec& spec, const ModelInput& input);
  [[nodiscard]] std::vector<Layer> Layers() override;

 private:
  const bool small_images_;
  torch::nn::Conv2d stem_ = nullptr;           // conv1
  torch::nn::BatchNorm2d norm_ = nullptr;      // bn1
  std::vector<torch::nn::Sequential> stages_;  // layer1 … layer4
  torch::nn::Linear output_ = nullptr;         // fc
};

// kInvalidArgument if samples are not images [channels, height, width].
[[nodiscard]] Result<std::shared_ptr<Model>> MakeResnet(ResnetDepth depth, const api::ResnetSpec& spec,
                                                        const ModelInput& input);

}  // namespace lockstep::models
