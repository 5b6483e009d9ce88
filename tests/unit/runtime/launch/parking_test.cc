#include "runtime/launch/parking.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

TEST(FitsParked, LeavesAsMuchFreeAsItTakesForEachRankOfThePod) {
  EXPECT_TRUE(FitsParked(100, 200, 1));
  EXPECT_FALSE(FitsParked(100, 199, 1));
  EXPECT_TRUE(FitsParked(100, 1600, 8));
  EXPECT_FALSE(FitsParked(100, 1599, 8));
}

TEST(IsTooShortForParked, WhenLessIsFreeThanTheInterpretersOfThePodHold) {
  EXPECT_FALSE(IsTooShortForParked(100, 800, 8));
  EXPECT_TRUE(IsTooShortForParked(100, 799, 8));
}

TEST(FitsParked, OneThatWasJustParkedIsNotEndedAtOnce) {
  for (const int nproc : {1, 8}) {
    const double available = 200.0 * nproc;
    ASSERT_TRUE(FitsParked(100, available, nproc));
    EXPECT_FALSE(IsTooShortForParked(100, available - 100.0 * nproc, nproc)) << nproc;
  }
}

TEST(AreAlikeForImports, ForRoundsThatDifferInTheirNumberAndPortOnly) {
  const std::vector<std::string> first{
      "MASTER_ADDR=a",   "MASTER_PORT=1", "RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=0",
      "LOCKSTEP_ROUND=1"};
  std::vector<std::string> next{
      "MASTER_ADDR=a",   "MASTER_PORT=2", "RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RESTART_COUNT=1",
      "LOCKSTEP_ROUND=2"};
  EXPECT_TRUE(AreAlikeForImports(first, next));
  next[3] = "WORLD_SIZE=3";
  EXPECT_FALSE(AreAlikeForImports(first, next));
  next[3] = "WORLD_SIZE=2";
  next.push_back("OMP_NUM_THREADS=2");
  EXPECT_FALSE(AreAlikeForImports(first, next));
}

}  // namespace
}  // namespace lockstep::launch
