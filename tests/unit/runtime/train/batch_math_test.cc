#include "runtime/train/batch_math.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::train {
namespace {

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

TEST(MicroBatches, CutsASliceIntoPiecesOfTheGivenSize) {
  EXPECT_EQ(MicroBatches({10, 20}, std::nullopt), (std::vector<Slice>{{10, 20}}));
  EXPECT_EQ(MicroBatches({10, 20}, 4), (std::vector<Slice>{{10, 14}, {14, 18}, {18, 20}}));
  EXPECT_EQ(MicroBatches({10, 20}, 64), (std::vector<Slice>{{10, 20}}));
  EXPECT_TRUE(MicroBatches({5, 5}, std::nullopt).empty());
  EXPECT_TRUE(MicroBatches({5, 5}, 4).empty());
}

}  // namespace
}  // namespace lockstep::train
