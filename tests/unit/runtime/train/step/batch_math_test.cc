#include "runtime/train/step/batch_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::train {
namespace {

std::vector<double> Equal(int world) { return std::vector<double>(static_cast<std::size_t>(world), 1); }

TEST(SliceOf, DividesWithTheRemainderOnTheFirstRanks) {
  EXPECT_EQ(SliceOf(128, 0, 1), (Slice{0, 128}));
  EXPECT_EQ(SliceOf(128, 0, 3), (Slice{0, 43}));
  EXPECT_EQ(SliceOf(128, 1, 3), (Slice{43, 86}));
  EXPECT_EQ(SliceOf(128, 2, 3), (Slice{86, 128}));
  EXPECT_EQ(SliceOf(2, 1, 4), (Slice{1, 2}));
  EXPECT_EQ(SliceOf(2, 3, 4).size(), 0);
}

TEST(SliceOf, CoversEveryPlaceOnceInAnyWorld) {
  for (int64_t count = 0; count < 70; ++count) {
    for (int world = 1; world < 20; ++world) {
      int64_t next = 0;
      for (int rank = 0; rank < world; ++rank) {
        const Slice slice = SliceOf(count, rank, world);
        ASSERT_EQ(slice.begin, next) << count << " over " << world << " at " << rank;
        ASSERT_GE(slice.size(), count / world);
        ASSERT_LE(slice.size(), count / world + 1);
        next = slice.end;
      }
      ASSERT_EQ(next, count);
    }
  }
}

std::vector<int64_t> SizesOf(const std::vector<Slice>& slices) {
  std::vector<int64_t> sizes;
  for (const Slice& slice : slices) sizes.push_back(slice.size());
  return sizes;
}

TEST(SlicesBySpeed, AreProportionalToTheSpeeds) {
  EXPECT_EQ(SizesOf(SlicesBySpeed(32, std::vector<double>{4, 1})), (std::vector<int64_t>{26, 6}));
  EXPECT_EQ(SizesOf(SlicesBySpeed(16, std::vector<double>{4, 4, 4, 1})), (std::vector<int64_t>{5, 5, 5, 1}));
  EXPECT_EQ(SizesOf(SlicesBySpeed(10, std::vector<double>{1e6, 1, 1})), (std::vector<int64_t>{8, 1, 1}))
      << "nobody has none";
  EXPECT_EQ(SizesOf(SlicesBySpeed(2, std::vector<double>{1, 3, 2})), (std::vector<int64_t>{0, 1, 1}))
      << "where there are too few";
}

// No other division that gives each rank a position ends earlier.
TEST(SlicesBySpeed, CoverEveryPlaceOnceAndEndAsEarlyAsPossible) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::vector<double> speeds(1 + random() % 6);
    for (double& speed : speeds) speed = static_cast<double>(1 + random() % 1000);
    const auto count = static_cast<int64_t>(random() % 100);
    const std::vector<Slice> slices = SlicesBySpeed(count, speeds);
    int64_t next = 0;
    double end = 0;
    for (std::size_t rank = 0; rank < slices.size(); ++rank) {
      ASSERT_EQ(slices[rank].begin, next);
      ASSERT_TRUE(slices[rank].size() > 0 || count < static_cast<int64_t>(speeds.size()));
      next = slices[rank].end;
      if (slices[rank].size() > 1)
        end = std::max(end, static_cast<double>(slices[rank].size()) / speeds[rank]);
    }
    ASSERT_EQ(next, count);
    for (std::size_t rank = 0; rank < slices.size(); ++rank) {
      ASSERT_GE(static_cast<double>(slices[rank].size() + 1) / speeds[rank], end * (1 - 1e-9));
    }
  }
}

TEST(SlicesBySpeed, OfEqualSpeedsAreTheUsualOnes) {
  for (int64_t count = 0; count < 70; ++count) {
    for (int world = 1; world < 20; ++world) {
      const std::vector<Slice> slices = SlicesBySpeed(count, Equal(world));
      for (int rank = 0; rank < world; ++rank)
        ASSERT_EQ(slices[static_cast<std::size_t>(rank)], SliceOf(count, rank, world));
    }
  }
}

TEST(MicroBatches, CutsASliceIntoPiecesOfTheGivenSize) {
  EXPECT_EQ(MicroBatches({10, 20}, std::nullopt), (std::vector<Slice>{{10, 20}}));
  EXPECT_EQ(MicroBatches({10, 20}, 4), (std::vector<Slice>{{10, 14}, {14, 18}, {18, 20}}));
  EXPECT_EQ(MicroBatches({10, 20}, 64), (std::vector<Slice>{{10, 20}}));
  EXPECT_TRUE(MicroBatches({5, 5}, std::nullopt).empty());
  EXPECT_TRUE(MicroBatches({5, 5}, 4).empty());
}

TEST(ShareOf, CutsEachRanksShare) {
  const RankShare share = ShareOf(20, 1, Equal(3), {.size = 4});
  EXPECT_EQ(share.positions, (Slice{7, 14}));
  EXPECT_EQ(share.pieces, (std::vector<Slice>{{7, 11}, {11, 14}}));
  EXPECT_EQ(share.micro_batches, (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(ShareOf(2, 2, Equal(3), {}).micro_batches, (std::vector<int64_t>{1, 1, 0}));
}

TEST(ShareOf, GivesWholePiecesThatAreTheSameInAnyWorld) {
  for (int64_t count = 1; count < 60; ++count) {
    for (int64_t size = 1; size < 9; ++size) {
      const std::vector<Slice> all = MicroBatches({0, count}, size);
      for (int world = 1; world < 12; ++world) {
        std::vector<Slice> together;
        std::vector<double> speeds = Equal(world);
        speeds.front() = 3;
        for (int rank = 0; rank < world; ++rank) {
          const RankShare share = ShareOf(count, rank, speeds, {.size = size, .same_in_any_world = true});
          ASSERT_EQ(share.micro_batches[static_cast<std::size_t>(rank)],
                    static_cast<int64_t>(share.pieces.size()));
          ASSERT_LE(share.positions.end, count);
          together.insert(together.end(), share.pieces.begin(), share.pieces.end());
        }
        ASSERT_EQ(together, all) << count << " samples in pieces of " << size << " over " << world
                                 << " ranks";
      }
    }
  }
}

TEST(MicroBatchPolicyOf, DependsOnTheJobAlone) {
  api::TrainingSpec spec;
  spec.global_batch_size = 100;
  EXPECT_EQ(MicroBatchPolicyOf(spec).size, std::nullopt);
  EXPECT_FALSE(MicroBatchPolicyOf(spec).same_in_any_world);
  spec.determinism = api::Determinism::kWorld;
  EXPECT_EQ(MicroBatchPolicyOf(spec).size, 7);  // 16 pieces at most
  EXPECT_TRUE(MicroBatchPolicyOf(spec).same_in_any_world);
  spec.micro_batch_size = 25;
  EXPECT_EQ(MicroBatchPolicyOf(spec).size, 25);
}

}  // namespace
}  // namespace lockstep::train
