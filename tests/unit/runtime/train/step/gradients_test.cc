#include "runtime/train/step/gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::train {
namespace {

std::vector<at::Tensor> WithGradients(const std::vector<std::vector<float>>& values) {
  std::vector<at::Tensor> parameters;
  for (const auto& value : values) {
    const at::Tensor gradient = torch::tensor(value);
    parameters.push_back(torch::zeros_like(gradient).requires_grad_(true));
    parameters.back().mutable_grad() = gradient;
  }
  return parameters;
}

TEST(AverageAndClip, DividesSumsByTheGlobalCount) {
  const auto parameters = WithGradients({{6, 0}, {8}});
  EXPECT_DOUBLE_EQ(AverageAndClip(parameters, 2, std::nullopt), 5);  // of (3, 0, 4)
  EXPECT_TRUE(parameters[0].grad().equal(torch::tensor({3.0F, 0.0F})));
  EXPECT_TRUE(parameters[1].grad().equal(torch::tensor({4.0F})));
}

TEST(AverageAndClip, ShortensTheMeanAsPyTorchDoes) {
  const auto parameters = WithGradients({{6, 0}, {8}});
  EXPECT_DOUBLE_EQ(AverageAndClip(parameters, 2, 1.0), 5);
  auto reference = WithGradients({{3, 0}, {4}});
  torch::nn::utils::clip_grad_norm_(reference, 1.0);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_TRUE(parameters[i].grad().allclose(reference[i].grad(), 1e-6));
  }
}

TEST(AverageAndClip, LeavesShortGradientsAlone) {
  const auto parameters = WithGradients({{0.3F, 0.4F}});
  EXPECT_NEAR(AverageAndClip(parameters, 1, 1.0), 0.5, 1e-6);
  EXPECT_TRUE(parameters[0].grad().equal(torch::tensor({0.3F, 0.4F})));
}

TEST(AverageAndClip, TouchesNothingWhereTheNormIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const auto parameters = WithGradients({{2, bad}});
    EXPECT_FALSE(std::isfinite(AverageAndClip(parameters, 2, 1.0)));
    EXPECT_EQ(parameters[0].grad()[0].item<float>(), 2);
  }
}

}  // namespace
}  // namespace lockstep::train
