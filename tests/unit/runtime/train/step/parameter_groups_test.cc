#include "runtime/train/step/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/models/model.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

api::OptimizerSpec Grouped() {
  return {.weight_decay = 0.1,
          .groups = {{.match = {"fc1.*", "*.missing"}, .weight_decay = 0.3},
                     {.match = {"fc?.weight"}, .learning_rate_scale = 0.5},
                     {.match = {"fc[23].*"}, .frozen = true}}};
}

ParameterSettings Of(const api::OptimizerSpec& spec, const std::string& name, int dimensions = 2) {
  return SettingsOf(spec, {name, at::zeros(std::vector<int64_t>(static_cast<std::size_t>(dimensions), 1))});
}

TEST(SettingsOf, TakesTheFirstGroupThatMatches) {
  const api::OptimizerSpec spec = Grouped();
  EXPECT_EQ(Of(spec, "fc1.weight"), (ParameterSettings{0.3, 1}));
  EXPECT_EQ(Of(spec, "fc2.weight"), (ParameterSettings{0.1, 0.5}));
  EXPECT_EQ(Of(spec, "h.0.attn.weight"), (ParameterSettings{0.1, 1}));
}

TEST(SettingsOf, LeavesNormsAndBiasesWithoutDecayWhereOnlyMatricesDecay) {
  api::OptimizerSpec spec = Grouped();
  spec.weight_decay_on = api::WeightDecayOn::kMatrices;
  EXPECT_EQ(Of(spec, "h.0.attn.weight"), (ParameterSettings{0.1, 1}));
  EXPECT_EQ(Of(spec, "conv.weight", 4), (ParameterSettings{0.1, 1}));
  EXPECT_EQ(Of(spec, "h.0.ln_1.weight", 1), (ParameterSettings{0, 1}));
  EXPECT_EQ(Of(spec, "fc1.bias", 1), (ParameterSettings{0.3, 1})) << "the group says so";
}

TEST(SettingsOf, UsesMuonForMatricesThatNoGroupExcludes) {
  api::OptimizerSpec spec{.name = api::OptimizerName::kMuon,
                          .groups = {{.match = {"wte.*"}, .use_muon = false}}};
  EXPECT_TRUE(Of(spec, "fc1.weight").use_muon);
  EXPECT_FALSE(Of(spec, "wte.weight").use_muon);
  EXPECT_FALSE(Of(spec, "fc1.bias", 1).use_muon);
  EXPECT_FALSE(Of(spec, "conv.weight", 4).use_muon);
  spec.name = api::OptimizerName::kAdamw;
  EXPECT_FALSE(Of(spec, "fc1.weight").use_muon);
}

std::shared_ptr<Model> ThreeLayers() {
  return *models::MakeModel({.mlp = {{4, 4}}}, {.sample_shape = {4}, .classes = 2}, 1);
}

TEST(Freeze, TakesTheGradientFromFrozenParametersOnly) {
  api::OptimizerSpec spec = Grouped();
  spec.groups[0].match.pop_back();
  const auto model = ThreeLayers();
  ASSERT_TRUE(Freeze(spec, *model).ok());
  for (const auto& parameter : model->named_parameters()) {
    const bool is_frozen = parameter.key() == "fc2.bias" || parameter.key() == "fc3.bias";
    EXPECT_EQ(parameter.value().requires_grad(), !is_frozen) << parameter.key();
  }
}

TEST(Freeze, NamesAPatternThatMatchesNothingAndWhatIsSimilar) {
  const auto refused = Freeze(Grouped(), *ThreeLayers());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              HasSubstr("spec.training.optimizer.groups[0].match[1]: no parameter of the model matches "
                        "\"*.missing\""));
  const auto mistyped = Freeze({.groups = {{.match = {"fc1.wieght"}}}}, *ThreeLayers());
  ASSERT_FALSE(mistyped.ok());
  EXPECT_THAT(mistyped.error().message, HasSubstr("did you mean \"fc1.weight\"?"));
  EXPECT_THAT(mistyped.error().message, HasSubstr("(the model has fc1.weight, fc1.bias, fc2.weight"));
}

TEST(Freeze, RefusesToFreezeEverything) {
  const auto refused = Freeze({.groups = {{.match = {"*"}, .frozen = true}}}, *ThreeLayers());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("all parameters of the model are frozen"));
}

}  // namespace
}  // namespace lockstep::train
