#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>

#include "runtime/data/dataset.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::vector<int64_t> AllIds(const Dataset& dataset) {
  std::vector<int64_t> ids(static_cast<std::size_t>(dataset.size()));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Datasets Synthetic(int64_t seed) {
  api::TrainingSpec spec{.seed = seed};
  spec.data.synthetic = {.samples = 300, .test_samples = 60, .shape = {2, 3}, .classes = 4};
  return std::move(OpenDatasets(spec)).value();
}

TEST(OpenDatasets, MakesSyntheticSamplesAsAsked) {
  const Datasets sets = Synthetic(1);
  EXPECT_EQ(sets.train->size(), 300);
  EXPECT_EQ(sets.test->size(), 60);
  EXPECT_EQ(sets.train->classes(), 4);
  EXPECT_EQ(sets.train->sample_shape(), (std::vector<int64_t>{2, 3}));
  const Batch all = sets.train->Get(AllIds(*sets.train));
  EXPECT_EQ(all.inputs.sizes(), (std::vector<int64_t>{300, 2, 3}));
  EXPECT_EQ(all.targets.min().item<int64_t>(), 0);
  EXPECT_EQ(all.targets.max().item<int64_t>(), 3);
}

TEST(OpenDatasets, SyntheticSamplesFollowFromTheSeedAlone) {
  const Datasets first = Synthetic(1);
  torch::manual_seed(999);
  (void)torch::randn({17});
  const Datasets second = Synthetic(1);
  const auto ids = AllIds(*first.train);
  EXPECT_TRUE(at::equal(first.train->Get(ids).inputs, second.train->Get(ids).inputs));
  EXPECT_TRUE(at::equal(first.train->Get(ids).targets, second.train->Get(ids).targets));
  EXPECT_FALSE(at::equal(first.train->Get(ids).inputs, Synthetic(2).train->Get(ids).inputs));
}

// The nearest class mean of the training samples classifies the test samples: there is something to learn.
TEST(OpenDatasets, SyntheticSamplesCanBeLearnt) {
  api::TrainingSpec spec{.seed = 3};
  spec.data.synthetic = {.samples = 2000, .test_samples = 500, .shape = {64}, .classes = 10};
  const Datasets sets = std::move(OpenDatasets(spec)).value();
  const Batch train = sets.train->Get(AllIds(*sets.train));
  const Batch test = sets.test->Get(AllIds(*sets.test));
  std::vector<at::Tensor> means;
  for (int64_t label = 0; label < 10; ++label)
    means.push_back(train.inputs.index({train.targets == label}).mean(0));
  const at::Tensor guesses = at::cdist(test.inputs, at::stack(means)).argmin(1);
  EXPECT_GT(guesses.eq(test.targets).to(at::kFloat).mean().item<double>(), 0.8);
}

TEST(OpenDatasets, NamesTheFieldOfAFolderThatIsNotThere) {
  for (const auto format : {api::DataFormat::kIdx, api::DataFormat::kCsv, api::DataFormat::kNpy,
                            api::DataFormat::kImageFolder, api::DataFormat::kTokens}) {
    const auto sets = OpenDatasets({.data = {.format = format, .path = "/nowhere"}});
    ASSERT_FALSE(sets.ok());
    EXPECT_THAT(sets.error().message, HasSubstr("spec.training.data.path: /nowhere"));
  }
}

}  // namespace
}  // namespace lockstep::data
