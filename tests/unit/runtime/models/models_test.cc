#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/models/model.h"

namespace lockstep::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSeed = 7;
const ModelInput kMnist{.sample_shape = {1, 28, 28}, .classes = 10};

api::ModelSpec Cnn(std::vector<int64_t> channels) {
  return {.name = api::ModelName::kCnn, .cnn = {.channels = std::move(channels)}};
}

std::vector<std::string> NamesOf(const Model& model) { return model.named_parameters().keys(); }

TEST(Mlp, GivesOneValuePerClass) {
  for (const std::vector<int64_t>& hidden : {std::vector<int64_t>{}, {5}, {16, 8}}) {
    const auto model = MakeModel({.mlp = {hidden}}, {.sample_shape = {3, 4}, .classes = 6}, kSeed);
    ASSERT_TRUE(model.ok());
    EXPECT_EQ((*model)->Forward(torch::randn({2, 3, 4})).sizes(), (std::vector<int64_t>{2, 6}));
    EXPECT_EQ((*model)->parameters().size(), 2 * (hidden.size() + 1));
  }
}

TEST(Mlp, NamesItsParametersLikePyTorch) {
  const auto model = MakeModel({.mlp = {{8}}}, kMnist, kSeed);
  EXPECT_THAT(NamesOf(**model), ElementsAre("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
}

TEST(Cnn, GivesOneValuePerClass) {
  for (const std::vector<int64_t>& channels : {std::vector<int64_t>{}, {4}, {4, 6, 8}}) {
    const auto model = MakeModel(Cnn(channels), {.sample_shape = {3, 9, 14}, .classes = 6}, kSeed);
    ASSERT_TRUE(model.ok()) << model.error().ToString();
    EXPECT_EQ((*model)->Forward(torch::randn({2, 3, 9, 14})).sizes(), (std::vector<int64_t>{2, 6}));
  }
}

TEST(Cnn, NamesItsParametersLikePyTorch) {
  const auto model = MakeModel(Cnn({4, 8}), kMnist, kSeed);
  EXPECT_THAT(NamesOf(**model), ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
                                            "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"));
}

TEST(Cnn, DropsOutInTrainingOnly) {
  const auto model = MakeModel(Cnn({4}), kMnist, kSeed);
  const at::Tensor inputs = torch::randn({4, 1, 28, 28});
  (*model)->eval();
  EXPECT_TRUE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
  (*model)->train();
  EXPECT_FALSE(at::equal((*model)->Forward(inputs), (*model)->Forward(inputs)));
}

TEST(Cnn, RefusesSamplesThatItCannotPoolByField) {
  const std::vector<int64_t> deep(70, 2);
  const std::pair<api::ModelSpec, std::vector<int64_t>> cases[] = {
      {Cnn({4, 8}), {3, 3, 28}},  {Cnn({4, 8}), {3, 28, 3}}, {Cnn({4}), {784}}, {Cnn({4}), {}},
      {Cnn({4}), {1, 1, 28, 28}}, {Cnn(deep), {1, 28, 28}}};
  for (const auto& [spec, shape] : cases) {
    const auto model = MakeModel(spec, {.sample_shape = shape, .classes = 2}, kSeed);
    ASSERT_FALSE(model.ok()) << at::IntArrayRef(shape);
    EXPECT_EQ(model.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(model.error().message, HasSubstr("spec.training.model.cnn.channels"));
  }
}

TEST(MakeModel, TheSeedAloneDecidesTheParameters) {
  for (const auto name : {api::ModelName::kMlp, api::ModelName::kCnn}) {
    const auto first = MakeModel({.name = name}, kMnist, kSeed);
    (void)torch::randn({13});
    const auto second = MakeModel({.name = name}, kMnist, kSeed);
    const auto other = MakeModel({.name = name}, kMnist, kSeed + 1);
    for (const auto& parameter : (*first)->named_parameters()) {
      EXPECT_TRUE(at::equal(parameter.value(), (*second)->named_parameters()[parameter.key()]));
      EXPECT_FALSE(at::equal(parameter.value(), (*other)->named_parameters()[parameter.key()]));
    }
  }
}

TEST(MakeModel, NamesTheFieldOfAModelThatIsNotThere) {
  const auto model = MakeModel({.name = api::ModelName::kResnet50}, kMnist, kSeed);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(model.error().message, HasSubstr("spec.training.model.name: resnet50"));
}

TEST(ClassificationLoss, IsASumThatDoesNotDependOnHowTheBatchIsCut) {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({10, 4});
  const at::Tensor targets = torch::randint(4, {10}, at::kLong);
  const LossSums whole = ClassificationLoss(logits, targets);
  const LossSums head = ClassificationLoss(logits.slice(0, 0, 3), targets.slice(0, 0, 3));
  const LossSums tail = ClassificationLoss(logits.slice(0, 3), targets.slice(0, 3));
  EXPECT_NEAR(whole.loss.item<double>(), (head.loss + tail.loss).item<double>(), 1e-5);
  EXPECT_EQ(whole.correct, head.correct + tail.correct);
  EXPECT_EQ(whole.count, 10);
}

TEST(ClassificationLoss, CountsTheRightOnes) {
  const at::Tensor logits = torch::tensor({{9.0F, 0.0F}, {0.0F, 9.0F}, {0.0F, 9.0F}});
  const LossSums sums = ClassificationLoss(logits, torch::tensor({0, 1, 0}, at::kLong));
  EXPECT_EQ(sums.correct, 2);
  EXPECT_NEAR(sums.loss.item<double>(), 9.0, 1e-2);
}

TEST(ClassificationLoss, OfNoSamplesIsNothing) {
  const LossSums sums = ClassificationLoss(torch::empty({0, 4}), torch::empty({0}, at::kLong));
  EXPECT_EQ(sums.loss.item<double>(), 0);
  EXPECT_EQ(sums.count, 0);
}

}  // namespace
}  // namespace lockstep::models
