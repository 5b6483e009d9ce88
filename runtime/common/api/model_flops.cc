#include "runtime/common/api/model_flops.h"

#include <array>

namespace lockstep::api {
namespace {

// For one sample, forward.
double Linear(int64_t inputs, int64_t outputs) {
  return 2.0 * static_cast<double>(inputs) * static_cast<double>(outputs);
}

// The activation between two layers of a network for images.
struct Image {
  int64_t channels;
  int64_t height;
  int64_t width;

  [[nodiscard]] int64_t size() const { return channels * height * width; }
};

// Padded, so that only the stride changes the sides. Updates `image` to the output.
double Convolve(Image& image, int64_t channels, int64_t kernel, int64_t stride) {
  const int64_t inputs = image.channels * kernel * kernel;
  image = {channels, (image.height + stride - 1) / stride, (image.width + stride - 1) / stride};
  return Linear(inputs, image.size());
}

double ForwardMlp(const MlpSpec& spec, std::span<const int64_t> sample_shape, int64_t classes) {
  int64_t width = 1;
  for (const int64_t extent : sample_shape) width *= extent;
  double flops = 0;
  for (const int64_t size : spec.hidden_sizes) {
    flops += Linear(width, size);
    width = size;
  }
  return flops + Linear(width, classes);
}

double ForwardCnn(const CnnSpec& spec, Image image, int64_t classes) {
  double flops = 0;
  for (const int64_t channels : spec.channels) {
    flops += Convolve(image, channels, 3, 1);
    image.height /= 2;
    image.width /= 2;
  }
  return flops + Linear(image.size(), spec.hidden_size) + Linear(spec.hidden_size, classes);
}

// Two of 3x3, or a bottleneck of 1x1, 3x3, 1x1; if the sides or the channels change, the shortcut has a 1x1.
double Block(Image& image, int64_t width, int64_t stride, bool is_bottleneck) {
  const Image before = image;
  double flops = 0;
  if (is_bottleneck) {
    flops += Convolve(image, width, 1, 1);
    flops += Convolve(image, width, 3, stride);
    flops += Convolve(image, 4 * width, 1, 1);
  } else {
    flops += Convolve(image, width, 3, stride);
    flops += Convolve(image, width, 3, 1);
  }
  if (stride == 1 && image.channels == before.channels) return flops;
  Image shortcut = before;
  return flops + Convolve(shortcut, image.channels, 1, stride);
}

double ForwardResnet(const ResnetSpec& spec, bool has_50_layers, Image image, int64_t classes) {
  constexpr int64_t kWidth = 64;
  double flops = spec.small_images ? Convolve(image, kWidth, 3, 1) : Convolve(image, kWidth, 7, 2);
  if (!spec.small_images) image = {kWidth, (image.height + 1) / 2, (image.width + 1) / 2};  // after pooling
  int64_t width = kWidth;
  for (const int blocks : has_50_layers ? std::array{3, 4, 6, 3} : std::array{2, 2, 2, 2}) {
    for (int block = 0; block < blocks; ++block)
      flops += Block(image, width, block == 0 && width > kWidth ? 2 : 1, has_50_layers);
    width *= 2;
  }
  return flops + Linear(image.channels, classes);
}

double ForwardGpt(const GptSpec& spec, int64_t tokens) {
  const int64_t width = spec.embedding_size;
  // Per token: queries, keys, values, projection, and the two layers of four times the width.
  const double products = Linear(width, 3 * width) + Linear(width, width) + 2 * Linear(width, 4 * width);
  // Per other token: the product of query and key, and the weighted value.
  const double attention = 2 * Linear(width, tokens);
  const double layers = static_cast<double>(spec.layers) * (products + attention);
  return static_cast<double>(tokens) * (layers + Linear(width, spec.vocabulary_size));
}

std::optional<double> Forward(const ModelSpec& model, std::span<const int64_t> shape, int64_t classes) {
  const bool is_image = shape.size() == 3;
  const Image image = is_image ? Image{shape[0], shape[1], shape[2]} : Image{};
  switch (model.name) {
    case ModelName::kMlp: return ForwardMlp(model.mlp, shape, classes);
    case ModelName::kCnn:
      return is_image ? std::optional(ForwardCnn(model.cnn, image, classes)) : std::nullopt;
    case ModelName::kResnet18:
    case ModelName::kResnet50: {
      if (!is_image) return std::nullopt;
      return ForwardResnet(model.resnet, model.name == ModelName::kResnet50, image, classes);
    }
    case ModelName::kGpt:
      return shape.size() == 1 ? std::optional(ForwardGpt(model.gpt, shape[0])) : std::nullopt;
    case ModelName::kPlugin:
    case ModelName::kTorchscript: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> TrainingFlopsPerSample(const ModelSpec& model, std::span<const int64_t> sample_shape,
                                             int64_t classes) {
  const std::optional<double> forward = Forward(model, sample_shape, classes);
  return forward.has_value() ? std::optional(3 * *forward) : std::nullopt;
}

}  // namespace lockstep::api
