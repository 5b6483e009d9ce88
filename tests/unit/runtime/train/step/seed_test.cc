#include "runtime/train/step/seed.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::train {
namespace {

TEST(MicroBatchSeed, DependsOnSeedStepAndPlaceAlone) {
  EXPECT_EQ(MicroBatchSeed(1, 2, 3), MicroBatchSeed(1, 2, 3));
  std::set<uint64_t> seen;
  for (int64_t seed = 0; seed < 10; ++seed) {
    for (int64_t step = 0; step < 100; ++step) {
      for (int64_t begin = 0; begin < 10; ++begin) seen.insert(MicroBatchSeed(seed, step, begin));
    }
  }
  EXPECT_EQ(seen.size(), 10'000U);
}

TEST(SeedOfDevice, IsThatOfTheMicroBatchOnTheFirstAndAnotherOnEachOther) {
  EXPECT_EQ(SeedOfDevice(7, 0), 7U);
  const std::set<uint64_t> seen = {SeedOfDevice(7, 0), SeedOfDevice(7, 1), SeedOfDevice(7, 2),
                                   SeedOfDevice(8, 1)};
  EXPECT_EQ(seen.size(), 4U);
}

}  // namespace
}  // namespace lockstep::train
