#include "runtime/train/loop/broken_rounds.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

constexpr int kMost = 20;

TEST(BrokenRoundsTest, TheFirstCostNoTimeAndTheNextEverMore) {
  BrokenRounds rounds;
  EXPECT_EQ(rounds.Broke(), Milliseconds(0));
  EXPECT_EQ(rounds.Broke(), Milliseconds(0));
  Milliseconds before{50};
  for (int i = 2; i < kMost; ++i) {
    EXPECT_EQ(rounds.Broke(), std::min(before * 2, Milliseconds(5'000))) << i;
    before *= 2;
  }
}

TEST(BrokenRoundsTest, InTheEndTheProcessIsTakenForTheCause) {
  BrokenRounds rounds;
  for (int i = 0; i < kMost; ++i) ASSERT_TRUE(rounds.Broke().has_value()) << i;
  EXPECT_EQ(rounds.Broke(), std::nullopt);
  EXPECT_EQ(rounds.count(), kMost + 1);
}

TEST(BrokenRoundsTest, AStepIsANewBeginning) {
  BrokenRounds rounds;
  for (int i = 0; i < kMost; ++i) ASSERT_TRUE(rounds.Broke().has_value()) << i;
  rounds.MadeStep();
  EXPECT_EQ(rounds.Broke(), Milliseconds(0));
}

}  // namespace
}  // namespace lockstep::train
