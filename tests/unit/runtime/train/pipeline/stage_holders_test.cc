#include "runtime/train/pipeline/stage_holders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

using ::testing::ElementsAre;

constexpr Version kNothing{};
constexpr Version kBefore{4, 2};
constexpr Version kAfter{5, 2};

const std::vector<bool> kFirstHalf = {true, true, false};
const std::vector<bool> kSecondHalf = {false, false, true};

TEST(NewestHeldWhole, IsNothingWhereALayerIsLost) {
  const std::vector<StageHolder> holders = {{kBefore, kNothing, kFirstHalf},
                                            {kNothing, kNothing, {false, false, false}}};
  EXPECT_EQ(NewestHeldWhole(holders), std::nullopt);
  EXPECT_THAT(LayersMissing(holders, kBefore), ElementsAre(2));
}

TEST(NewestHeldWhole, CountsWhoOnlyLacksTheEndOfTheStep) {
  const std::vector<StageHolder> holders = {{kAfter, kNothing, kFirstHalf}, {kBefore, kAfter, kSecondHalf}};
  EXPECT_EQ(NewestHeldWhole(holders), kAfter);
}

TEST(NewestHeldWhole, IsTheStepBeforeWhereNoRankKnowsHowItEnded) {
  const std::vector<StageHolder> holders = {{kBefore, kAfter, kFirstHalf}, {kBefore, kAfter, kSecondHalf}};
  EXPECT_EQ(NewestHeldWhole(holders), kBefore);
}

TEST(NewestHeldWhole, IsTheStepBeforeWhereOnlyAStageReplicaOfTheLostRankMadeTheNext) {
  // The rank that made the step has continued; the part that it would need was lost with another rank.
  const std::vector<StageHolder> holders = {
      {kAfter, kNothing, kFirstHalf}, {kBefore, kNothing, kFirstHalf}, {kBefore, kNothing, kSecondHalf}};
  EXPECT_EQ(NewestHeldWhole(holders), kBefore);
}

TEST(NewestHeldWhole, DoesNotMixAStepThatWasMadeTwice) {
  const Version again{5, 3};
  const std::vector<StageHolder> holders = {{kAfter, kNothing, kFirstHalf}, {again, kNothing, kSecondHalf}};
  EXPECT_EQ(NewestHeldWhole(holders), std::nullopt);
}

}  // namespace
}  // namespace lockstep::train
