#include "runtime/train/step/not_finite_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
const std::function<Result<std::string>()> kFound = [] { return Result<std::string>("rank 1: loss"); };

TEST(NotFiniteSteps, EndTheTrainingWhenThreeFollowOneAnother) {
  LossScale scale;
  NotFiniteSteps steps;
  EXPECT_EQ(*steps.After(5, false, kNone, scale, kFound), "rank 1: loss");
  EXPECT_EQ(*steps.After(6, false, kNone, scale, kFound), "rank 1: loss");
  EXPECT_EQ(*steps.After(7, true, 0.5, scale, kFound), "") << "begins the count again";
  EXPECT_TRUE(steps.After(8, false, kNone, scale, kFound).ok());
  EXPECT_TRUE(steps.After(9, false, kNone, scale, kFound).ok());
  const Result<std::string> third = steps.After(10, false, kNone, scale, kFound);
  ASSERT_FALSE(third.ok());
  EXPECT_EQ(third.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(third.error().message, HasSubstr("up to step 10 (rank 1: loss)"));
}

TEST(NotFiniteSteps, AreNotCountedWhenTakenBack) {
  LossScale scale;
  NotFiniteSteps steps;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(steps.After(5, false, kNone, scale, kFound).ok());
    steps.Forget();
  }
}

TEST(NotFiniteSteps, OfFp16LowerTheLossScaleAndAreNotCountedWhileTheyCan) {
  LossScale scale(api::Precision::kFp16, 1 << 13);
  NotFiniteSteps steps;
  const auto never = []() -> Result<std::string> {
    return Error{ErrorCode::kInternal, "asked for the place"};
  };
  for (const char* factor : {"8", "4", "2"})
    EXPECT_EQ(*steps.After(5, false, 0.5, scale, never),
              std::string("gradients of fp16 at the loss scale ") + factor);
  EXPECT_EQ(scale.factor(), 1);
  EXPECT_EQ(*steps.After(5, false, 0.5, scale, kFound), "rank 1: loss") << "the scale can not be the reason";
}

TEST(NotFiniteSteps, StayAsTheyAreWhenTheirPlaceIsNotFound) {
  LossScale scale;
  NotFiniteSteps steps;
  const auto gone = []() -> Result<std::string> { return Error{ErrorCode::kAborted, "rank 2 has left"}; };
  EXPECT_EQ(*steps.After(5, false, kNone, scale, gone), "location unknown: rank 2 has left");
}

}  // namespace
}  // namespace lockstep::train
