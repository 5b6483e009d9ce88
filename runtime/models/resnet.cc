#include "runtime/models/resnet.h"

#include <torch/torch.h>

#include <array>

#include "runtime/models/channels_last.h"

namespace lockstep::models {
namespace {

struct Convolution {
  int64_t channels;
  int64_t kernel;
  int64_t stride;
};

// Convolutions, each followed by a norm, parallel to a shortcut: two of 3x3, or a bottleneck of 1x1, 3x3,
// 1x1.
class ResidualImpl final : public torch::nn::Module {
 public:
  ResidualImpl(int64_t channels, const std::vector<Convolution>& layers) {
    const int64_t in_channels = channels;
    int64_t stride = 1;
    for (const Convolution& layer : layers) {
      const std::string number = std::to_string(convolutions_.size() + 1);
      convolutions_.push_back(
          register_module("conv" + number, torch::nn::Conv2d(OptionsOf(channels, layer))));
      norms_.push_back(register_module("bn" + number, torch::nn::BatchNorm2d(layer.channels)));
      channels = layer.channels;
      stride *= layer.stride;
    }
    if (stride == 1 && channels == in_channels) return;
    downsample_ = register_module(
        "downsample", torch::nn::Sequential(torch::nn::Conv2d(OptionsOf(in_channels, {channels, 1, stride})),
                                            torch::nn::BatchNorm2d(channels)));
  }

  at::Tensor forward(const at::Tensor& inputs) {
    at::Tensor x = inputs;
    for (std::size_t i = 0; i < convolutions_.size(); ++i) {
      x = norms_[i]->forward(convolutions_[i]->forward(x));
      if (i + 1 < convolutions_.size()) x = x.relu();
    }
    return (x + (downsample_.is_empty() ? inputs : downsample_->forward(inputs))).relu();
  }

 private:
  static torch::nn::Conv2dOptions OptionsOf(int64_t channels, const Convolution& layer) {
    return torch::nn::Conv2dOptions(channels, layer.channels, layer.kernel)
        .stride(layer.stride)
        .padding(layer.kernel / 2)
        .bias(false);
  }

  std::vector<torch::nn::Conv2d> convolutions_;
  std::vector<torch::nn::BatchNorm2d> norms_;
  torch::nn::Sequential downsample_ = nullptr;
};
TORCH_MODULE(Residual);

std::vector<Convolution> ConvolutionsOf(ResnetDepth depth, int64_t width, int64_t stride) {
  if (depth == ResnetDepth::k18) return {{width, 3, stride}, {width, 3, 1}};
  return {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
}

std::array<int, 4> BlocksOf(ResnetDepth depth) {
  return depth == ResnetDepth::k18 ? std::array{2, 2, 2, 2} : std::array{3, 4, 6, 3};
}

void InitialiseResNet(torch::nn::Module& module) {
  if (auto* convolution = module.as<torch::nn::Conv2d>())
    torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
}

}  // namespace

Resnet::Resnet(ResnetDepth depth, const api::ResnetSpec& spec, const ModelInput& input)
    : small_images_(spec.small_images) {
  constexpr int64_t kWidth = 64;
  const auto stem =
      small_images_ ? torch::nn::Conv2dOptions(input.sample_shape.front(), kWidth, 3).padding(1)
                    : torch::nn::Conv2dOptions(input.sample_shape.front(), kWidth, 7).stride(2).padding(3);
  stem_ = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(stem).bias(false)));
  norm_ = register_module("bn1", torch::nn::BatchNorm2d(kWidth));
  int64_t channels = kWidth;
  int64_t width = kWidth;
  for (const int blocks : BlocksOf(depth)) {
    torch::nn::Sequential stage;
    for (int block = 0; block < blocks; ++block) {
      const std::vector<Convolution> layers =
          ConvolutionsOf(depth, width, block == 0 && width > kWidth ? 2 : 1);
      stage->push_back(Residual(channels, layers));
      channels = layers.back().channels;
    }
    stages_.push_back(register_module("layer" + std::to_string(stages_.size() + 1), stage));
    width *= 2;
  }
  output_ = register_module("fc", torch::nn::Linear(channels, input.classes));
  apply(InitialiseResNet);
}

std::vector<Layer> Resnet::Layers() {
  const auto stem = [this](const at::Tensor& inputs) {
    const at::Tensor x = norm_->forward(stem_->forward(ForTensorCores(inputs))).relu();
    return small_images_ ? x : at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
  };
  std::vector<Layer> layers = {{stem, {stem_.ptr(), norm_.ptr()}}};
  for (const torch::nn::Sequential& stage : stages_) {
    for (const auto& block : stage->children()) {
      const auto forward = [block = block->as<Residual>()](const at::Tensor& x) { return block->forward(x); };
      layers.push_back({forward, {block}});
    }
  }
  const auto output = [this](const at::Tensor& x) {
    return output_->forward(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  };
  layers.push_back({output, {output_.ptr()}});
  return layers;
}

Result<std::shared_ptr<Model>> MakeResnet(ResnetDepth depth, const api::ResnetSpec& spec,
                                          const ModelInput& input) {
  if (input.sample_shape.size() != 3) {
    return Error{ErrorCode::kInvalidArgument,
                 "spec.training.model.name: a resnet needs images [channels, height, width], and samples of "
                 "this data have " +
                     std::to_string(input.sample_shape.size()) + " dimensions; use the mlp"};
  }
  return std::shared_ptr<Model>(std::make_shared<Resnet>(depth, spec, input));
}

}  // namespace lockstep::models
