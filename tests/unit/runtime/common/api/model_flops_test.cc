#include "runtime/common/api/model_flops.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

// A multiplication and an addition, forward and twice backward.
constexpr double kPerProduct = 2 * 3;

double Flops(const ModelSpec& model, const std::vector<int64_t>& shape, int64_t classes) {
  return TrainingFlopsPerSample(model, shape, classes).value_or(-1);
}

TEST(TrainingFlopsPerSample, OfFullyConnectedLayers) {
  const double products = 6 * 8 + 8 * 4 + 4 * 5;
  EXPECT_EQ(Flops({.mlp = {{8, 4}}}, {2, 3}, 5), kPerProduct * products);
}

TEST(TrainingFlopsPerSample, OfConvolutionsAndPoolings) {
  const ModelSpec model{.name = ModelName::kCnn, .cnn = {.channels = {4, 6}, .hidden_size = 10}};
  // 3 channels of 8x13 to 4; pooled to 4x6; to 6 channels; pooled to 2x3; the two layers.
  const double products = 3 * 9 * 4 * (8 * 13) + 4 * 9 * 6 * (4 * 6) + 6 * 2 * 3 * 10 + 10 * 5;
  EXPECT_EQ(Flops(model, {3, 8, 13}, 5), kPerProduct * products);
}

// The numbers of products are those that torchvision publishes with its weights: 1.814 and 4.089 thousand
// million ("_ops").
TEST(TrainingFlopsPerSample, OfResidualNetworks) {
  const double stem = 3 * 49 * 64 * (112 * 112);
  const double stage1 = 4 * (64 * 9 * 64) * (56 * 56);
  // Each later stage halves the sides and doubles the channels, so all three cost the same.
  const double stage2 = (64 * 9 * 128 + 3 * 128 * 9 * 128 + 64 * 128) * (28 * 28);
  const double products = stem + stage1 + 3 * stage2 + 512 * 1000;
  EXPECT_EQ(products, 1'814'073'344);
  EXPECT_EQ(Flops({.name = ModelName::kResnet18}, {3, 224, 224}, 1000), kPerProduct * products);
  EXPECT_EQ(Flops({.name = ModelName::kResnet50}, {3, 224, 224}, 1000), kPerProduct * 4'089'184'256);
}

TEST(TrainingFlopsPerSample, OfAResidualNetworkForSmallImages) {
  const double stem = 3 * 9 * 64 * (32 * 32);
  const double stage1 = 4 * (64 * 9 * 64) * (32 * 32);
  const double stage2 = (64 * 9 * 128 + 3 * 128 * 9 * 128 + 64 * 128) * (16 * 16);
  EXPECT_EQ(Flops({.name = ModelName::kResnet18, .resnet = {.small_images = true}}, {3, 32, 32}, 10),
            kPerProduct * (stem + stage1 + 3 * stage2 + 512 * 10));
}

// Per token 6N + 12LHQT, as in appendix B of the PaLM paper; N are the weights of matrix products.
TEST(TrainingFlopsPerSample, OfATransformer) {
  const double layers = 2;
  const double width = 8;  // heads times their width
  const double tokens = 4;
  const double weights = 12 * layers * width * width + 32 * width;
  const ModelSpec model{
      .name = ModelName::kGpt,
      .gpt = {.layers = 2, .heads = 2, .embedding_size = 8, .context_length = 16, .vocabulary_size = 32}};
  EXPECT_EQ(Flops(model, {4}, 32), tokens * (6 * weights + 12 * layers * width * tokens));
}

TEST(TrainingFlopsPerSample, AreUnknownForAUsersOwnModelAndForInvalidShapes) {
  const std::vector<int64_t> row = {784};
  for (const ModelName name :
       {ModelName::kPlugin, ModelName::kTorchscript, ModelName::kCnn, ModelName::kResnet50})
    EXPECT_FALSE(TrainingFlopsPerSample({.name = name}, row, 10).has_value());
  EXPECT_FALSE(
      TrainingFlopsPerSample({.name = ModelName::kGpt}, std::vector<int64_t>{1, 28, 28}, 10).has_value());
}

}  // namespace
}  // namespace lockstep::api
