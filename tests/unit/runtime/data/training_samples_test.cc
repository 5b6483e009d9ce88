#include "runtime/data/training_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "runtime/data/tensors.h"

namespace lockstep::data {
namespace {

using ::testing::StartsWith;

api::TrainingSpec Spec() {
  api::TrainingSpec spec;
  spec.global_batch_size = 10;
  spec.seed = 4;
  return spec;
}

// 90 samples of class 0, 10 of class 1, none of class 2.
std::unique_ptr<Dataset> Images() {
  const at::Tensor labels = torch::arange(100).ge(90).to(at::kLong);
  return MakeTensorDataset(torch::rand({100, 1, 6, 6}), labels, 3);
}

class Sequences final : public Dataset {
 public:
  [[nodiscard]] int64_t size() const override { return 4; }
  [[nodiscard]] int64_t classes() const override { return 256; }
  [[nodiscard]] std::vector<int64_t> sample_shape() const override { return {8}; }
  [[nodiscard]] Batch Get(std::span<const int64_t>) const override { return {}; }
};

std::string ErrorOf(const api::TrainingSpec& spec, const Dataset& dataset) {
  const auto made = TrainingSamples::Make(spec, dataset);
  return made.ok() ? "" : made.error().message;
}

TEST(TrainingSamples, AreTheSamplesOfThePlan) {
  const auto images = Images();
  const auto samples = std::move(TrainingSamples::Make(Spec(), *images)).value();
  const Batch batch = samples.Get({.step = 13, .begin = 2, .end = 7});
  const auto ids = samples.plan().Ids(13, 2, 7);
  EXPECT_TRUE(at::equal(batch.inputs, images->Get(ids).inputs));
  EXPECT_TRUE(at::equal(batch.targets, images->Get(ids).targets));
}

TEST(TrainingSamples, AreQuickWhereFewNumbersOnlyHaveToBeCopied) {
  const auto images = Images();
  const auto are_quick = [](const api::TrainingSpec& spec, const Dataset& dataset) {
    return TrainingSamples::Make(spec, dataset).value().are_quick();
  };
  EXPECT_TRUE(are_quick(Spec(), *images));
  EXPECT_FALSE(are_quick(Spec(), Sequences())) << "not known to lie in memory";
  api::TrainingSpec large = Spec();
  large.global_batch_size = 1000;  // 144 kB
  EXPECT_FALSE(are_quick(large, *images));
  api::TrainingSpec augmented = Spec();
  augmented.data.augmentation.horizontal_flip = true;
  EXPECT_FALSE(are_quick(augmented, *images));
}

TEST(TrainingSamples, ChangeFromEpochToEpochWhereAsked) {
  const auto images = Images();
  api::TrainingSpec spec = Spec();
  spec.data.shuffle = false;
  spec.data.augmentation = {.horizontal_flip = true, .crop_padding = 1};
  const auto samples = std::move(TrainingSamples::Make(spec, *images)).value();
  const at::Tensor first = samples.Get({.step = 0, .begin = 0, .end = 10}).inputs;
  EXPECT_TRUE(at::equal(samples.Get({.step = 0, .begin = 0, .end = 10}).inputs, first));
  EXPECT_TRUE(at::equal(samples.Get({.step = 0, .begin = 3, .end = 4}).inputs[0], first[3]))
      << "in any share";
  EXPECT_FALSE(at::equal(samples.Get({.step = 10, .begin = 0, .end = 10}).inputs, first)) << "the next epoch";
}

// The augmentations of the others depend on their positions in the step, as if no row had been removed.
TEST(TrainingSamples, AreWithoutCorruptRecords) {
  const at::Tensor images = torch::rand({4, 1, 6, 6});
  const at::Tensor labels = torch::tensor({0, 1, 2, 0}, at::kLong);
  api::TrainingSpec spec = Spec();
  spec.global_batch_size = 4;
  spec.data.shuffle = false;
  spec.data.augmentation = {.horizontal_flip = true, .crop_padding = 2};
  const auto all = MakeTensorDataset(images, labels, 3);
  const auto some = MakeTensorDataset(images, labels, 3, {0, 2});
  const Batch whole = TrainingSamples::Make(spec, *all).value().Get({0, 0, 4});
  const Batch batch = TrainingSamples::Make(spec, *some).value().Get({0, 0, 4});
  EXPECT_EQ(whole.left_out, 0);
  EXPECT_EQ(batch.left_out, 2);
  const at::Tensor good = torch::tensor({1, 3}, at::kLong);
  EXPECT_TRUE(at::equal(batch.inputs, whole.inputs.index_select(0, good)));
  EXPECT_TRUE(at::equal(batch.targets, torch::tensor({1, 0}, at::kLong)));
  EXPECT_EQ(TrainingSamples::Make(spec, *some).value().Get({0, 2, 3}).inputs.size(0), 0);
}

TEST(TrainingSamples, OfUnknownClassAreNotDrawnByWeights) {
  const auto samples =
      MakeTensorDataset(torch::rand({4, 2}), torch::tensor({0, 1, 1, 0}, at::kLong), 2, {1, 3});
  api::TrainingSpec spec = Spec();
  spec.data.sampler = api::SamplerName::kWeighted;
  const auto plan = TrainingSamples::Make(spec, *samples).value().plan();
  for (const int64_t id : plan.Ids(0, 0, plan.CountOf(0))) EXPECT_EQ(id % 2, 0);
}

TEST(TrainingSamples, AreDrawnByTheWeightsOfTheirClasses) {
  const auto images = Images();
  api::TrainingSpec spec = Spec();
  spec.data.sampler = api::SamplerName::kWeighted;
  const auto rare = [&] {
    const auto samples = std::move(TrainingSamples::Make(spec, *images)).value();
    int64_t count = 0;
    for (int64_t step = 0; step < 200; ++step)
      count += samples.Get({step, 0, 10}).targets.sum().item<int64_t>();
    return static_cast<double>(count) / 2000;
  };
  EXPECT_NEAR(rare(), 0.5, 0.04) << "all that have samples equally often";
  spec.data.class_weights = {1, 3, 0};
  EXPECT_NEAR(rare(), 0.75, 0.04);
}

TEST(TrainingSamples, RefusesWhatDoesNotFitTheData) {
  const auto images = Images();
  api::TrainingSpec spec = Spec();
  spec.data.sampler = api::SamplerName::kWeighted;
  EXPECT_THAT(ErrorOf(spec, Sequences()), StartsWith("spec.training.data.sampler: "));
  spec.data.class_weights = {1, 1};
  EXPECT_THAT(ErrorOf(spec, *images), StartsWith("spec.training.data.classWeights: has 2 numbers"));
  spec.data.class_weights = {1, 1, 1};
  EXPECT_THAT(ErrorOf(spec, *images), StartsWith("spec.training.data.classWeights: class 2 "));
  spec.data.class_weights = {0, 0, 0};
  EXPECT_THAT(ErrorOf(spec, *images), StartsWith("spec.training.data.classWeights: no class"));
}

}  // namespace
}  // namespace lockstep::data
