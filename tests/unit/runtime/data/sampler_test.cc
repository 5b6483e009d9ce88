#include "runtime/data/sampler.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace lockstep::data {
namespace {

std::vector<int64_t> UpTo(int64_t count) {
  std::vector<int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::vector<int64_t> Sorted(std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

SamplePlanOptions AnyOptions() {
  return {.size = *rc::gen::inRange<int64_t>(1, 400),
          .global_batch = *rc::gen::inRange<int64_t>(1, 90),
          .seed = *rc::gen::arbitrary<uint64_t>(),
          .shuffle = *rc::gen::arbitrary<bool>(),
          .drop_last = *rc::gen::arbitrary<bool>()};
}

// The ids of one epoch, with each step divided over a different world, as after failures and joins.
std::vector<int64_t> EpochOverChangingWorlds(const SamplePlan& plan, int64_t epoch) {
  std::vector<int64_t> ids;
  for (int64_t step = epoch * plan.steps_per_epoch(); plan.EpochOf(step) == epoch; ++step) {
    const int64_t world = *rc::gen::inRange<int64_t>(1, 9);
    for (int64_t rank = 0; rank < world; ++rank) {
      const int64_t count = plan.CountOf(step);
      const auto share = plan.Ids(step, count * rank / world, count * (rank + 1) / world);
      ids.insert(ids.end(), share.begin(), share.end());
    }
  }
  return ids;
}

std::vector<int64_t> EpochOfOneRank(const SamplePlan& plan, int64_t epoch) {
  std::vector<int64_t> ids;
  for (int64_t step = epoch * plan.steps_per_epoch(); plan.EpochOf(step) == epoch; ++step) {
    const auto all = plan.Ids(step, 0, plan.CountOf(step));
    ids.insert(ids.end(), all.begin(), all.end());
  }
  return ids;
}

TEST(Permutation, TakesEachPlaceOnce) {
  EXPECT_TRUE(rc::check("the images of [0, size) are [0, size)", [] {
    const auto size = *rc::gen::inRange<int64_t>(1, 3000);
    const Permutation order(*rc::gen::arbitrary<uint64_t>(), size);
    std::vector<int64_t> images;
    for (int64_t position = 0; position < size; ++position) images.push_back(order.At(position));
    RC_ASSERT(Sorted(images) == UpTo(size));
  }));
}

TEST(Permutation, StaysInTheRangeOfAHugeDataSet) {
  const int64_t size = (int64_t{1} << 40) + 1;
  const Permutation order(3, size);
  for (const int64_t position : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
    EXPECT_GE(order.At(position), 0);
    EXPECT_LT(order.At(position), size);
  }
}

TEST(SamplePlan, UsesEachSampleOfAnEpochOnceInAnyWorlds) {
  EXPECT_TRUE(rc::check("an epoch is the data set", [] {
    SamplePlanOptions options = AnyOptions();
    options.drop_last = false;
    const SamplePlan plan(options);
    RC_ASSERT(Sorted(EpochOverChangingWorlds(plan, *rc::gen::inRange<int64_t>(0, 5))) == UpTo(options.size));
  }));
}

TEST(SamplePlan, TheOrderDoesNotDependOnTheWorlds) {
  EXPECT_TRUE(rc::check("any division gives the order of one rank", [] {
    const SamplePlan plan(AnyOptions());
    const auto epoch = *rc::gen::inRange<int64_t>(0, 5);
    RC_ASSERT(EpochOverChangingWorlds(plan, epoch) == EpochOfOneRank(plan, epoch));
  }));
}

TEST(SamplePlan, DropLastLeavesOutLessThanABatchAndNothingTwice) {
  EXPECT_TRUE(rc::check("whole batches only, unless there is none", [] {
    SamplePlanOptions options = AnyOptions();
    options.drop_last = true;
    const SamplePlan plan(options);
    auto ids = Sorted(EpochOfOneRank(plan, 1));
    RC_ASSERT(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
    const int64_t whole = options.size / options.global_batch * options.global_batch;
    RC_ASSERT(static_cast<int64_t>(ids.size()) == (whole > 0 ? whole : options.size));
  }));
}

TEST(SamplePlan, ShufflesEachEpochDifferentlyAndBySeed) {
  const SamplePlan plan({.size = 1000, .global_batch = 100, .seed = 7});
  EXPECT_NE(EpochOfOneRank(plan, 0), UpTo(1000));
  EXPECT_NE(EpochOfOneRank(plan, 0), EpochOfOneRank(plan, 1));
  EXPECT_NE(EpochOfOneRank(plan, 0),
            EpochOfOneRank(SamplePlan({.size = 1000, .global_batch = 100, .seed = 8}), 0));
  EXPECT_EQ(EpochOfOneRank(plan, 3),
            EpochOfOneRank(SamplePlan({.size = 1000, .global_batch = 100, .seed = 7}), 3));
}

TEST(SamplePlan, KeepsTheOrderOfTheFileWithoutShuffle) {
  const SamplePlan plan({.size = 10, .global_batch = 4, .seed = 7, .shuffle = false});
  EXPECT_EQ(EpochOfOneRank(plan, 2), UpTo(10));
  EXPECT_EQ(plan.steps_per_epoch(), 3);
  EXPECT_EQ(plan.CountOf(5), 2);
}

TEST(SamplePlan, DrawsClassesByWeightWhereAsked) {
  // 900 of class 0, 90 of class 1, 10 of class 2.
  std::vector<int64_t> labels(1000, 0);
  std::fill(labels.begin() + 900, labels.end(), 1);
  std::fill(labels.begin() + 990, labels.end(), 2);
  for (const std::vector<double>& weights : {std::vector<double>{1, 1, 1}, {2, 5, 13}, {0, 0.5, 1.5}}) {
    const SamplePlan plan({.size = 1000,
                           .global_batch = 64,
                           .seed = 7,
                           .weighted = std::make_shared<const ClassDraw>(labels, weights)});
    EXPECT_EQ(plan.steps_per_epoch(), 16) << "as many as there are";
    EXPECT_EQ(EpochOfOneRank(plan, 0), EpochOfOneRank(plan, 0));
    EXPECT_NE(EpochOfOneRank(plan, 0), EpochOfOneRank(plan, 1));
    std::vector<double> seen(3);
    std::set<int64_t> ids;
    for (int64_t epoch = 0; epoch < 40; ++epoch) {
      for (const int64_t id : EpochOfOneRank(plan, epoch)) {
        ++seen[static_cast<std::size_t>(labels[static_cast<std::size_t>(id)])];
        ids.insert(id);
      }
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(seen[i] / 40000, weights[i] / sum, 0.01) << i;
    EXPECT_GT(ids.size(), weights[0] > 0 ? 950 : 95) << "the samples of a class come up alike";
  }
}

TEST(ClassDraw, DrawsEverySampleOfAClassAndNoneWithoutALabel) {
  EXPECT_EQ(ClassDraw(std::vector<int64_t>{0}, std::vector<double>{1}).At(7, 0), 0);
  EXPECT_EQ(ClassDraw(std::vector<int64_t>{-1, 0}, std::vector<double>{1}).At(7, 0), 1);
}

// A checkpoint stores the step only, so its meaning must be the same in every version.
TEST(SamplePlan, TheOrderOfASeedNeverChanges) {
  const SamplePlan plan({.size = 10, .global_batch = 10, .seed = 42});
  EXPECT_EQ(plan.Ids(0, 0, 10), (std::vector<int64_t>{8, 5, 0, 7, 6, 9, 4, 1, 2, 3}));
  EXPECT_EQ(plan.Ids(1, 0, 10), (std::vector<int64_t>{9, 6, 3, 0, 2, 7, 1, 8, 4, 5}));
}

// Displaced evenly: the mean of |position - id| of a random order is a third of the size.
TEST(SamplePlan, ShufflesFar) {
  const int64_t size = 60000;
  const auto ids = EpochOfOneRank(SamplePlan({.size = size, .global_batch = 64, .seed = 1}), 0);
  double distance = 0;
  for (int64_t place = 0; place < size; ++place) {
    distance += static_cast<double>(std::abs(ids[static_cast<std::size_t>(place)] - place));
  }
  EXPECT_NEAR(distance / size / size, 1.0 / 3, 0.01);
}

}  // namespace
}  // namespace lockstep::data
