#include "runtime/train/step/not_finite.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

std::vector<at::Tensor> Parameters(int count) {
  std::vector<at::Tensor> parameters;
  for (int i = 0; i < count; ++i) parameters.push_back(torch::zeros({2}).requires_grad_(true));
  return parameters;
}

TEST(LookForNotFinite, NamesTheParameterWhereTheBackwardPassCeasesToBeFinite) {
  const auto parameters = Parameters(4);
  // The root's slope at 0 is infinite, for its layer and all layers before it.
  const at::Tensor root = (parameters[0] + parameters[1]).sqrt();
  NotFinite found;
  LookForNotFinite((root + parameters[2]).sum(), parameters, found);
  EXPECT_FALSE(found.loss);
  EXPECT_EQ(found.parameter, 1);
  for (const at::Tensor& parameter : parameters) EXPECT_FALSE(parameter.grad().defined());
}

// The step is judged by the norm, whose squares overflow first.
TEST(LookForNotFinite, CountsAGradientThatIsTooLongToMeasure) {
  const auto parameters = Parameters(2);
  NotFinite found;
  LookForNotFinite((parameters[0] * 1e30 + parameters[1]).sum(), parameters, found);
  EXPECT_FALSE(found.loss);
  EXPECT_EQ(found.parameter, 0);
}

TEST(LookForNotFinite, KeepsWhatAnEarlierMicroBatchShowed) {
  const auto parameters = Parameters(2);
  NotFinite found{.loss = true, .parameter = 1};
  LookForNotFinite((parameters[0] + parameters[1]).sum(), parameters, found);
  EXPECT_TRUE(found.loss);
  EXPECT_EQ(found.parameter, 1);
  NotFinite nothing;
  LookForNotFinite((parameters[0] + parameters[1]).sum(), parameters, nothing);
  EXPECT_FALSE(nothing.any());
}

TEST(Describe, NamesRanksAndLayers) {
  const std::vector<std::string> names = {"conv1.weight", "fc1.weight"};
  EXPECT_EQ(Describe({{}, {true, 1}, {}, {false, 0}}, names),
            "rank 1: loss, gradient of fc1.weight; rank 3: gradient of conv1.weight");
  EXPECT_EQ(Describe({{true, -1}}, names), "rank 0: loss");
  EXPECT_EQ(Describe({{}, {}}, names), "no rank's own loss or gradient, only their sum");
}

}  // namespace
}  // namespace lockstep::train
