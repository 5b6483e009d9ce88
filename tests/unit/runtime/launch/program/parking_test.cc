#include "runtime/launch/program/parking.h"

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

}  // namespace
}  // namespace lockstep::launch
