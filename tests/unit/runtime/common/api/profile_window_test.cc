#include "runtime/common/api/profile_window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

TEST(ParseProfileWindow, ReadsTheFirstAndTheLastStep) {
  EXPECT_EQ(*ParseProfileWindow("100-104"), (ProfileWindow{100, 104}));
  EXPECT_EQ(*ParseProfileWindow("0-0"), (ProfileWindow{0, 0}));
  EXPECT_EQ(*ParseProfileWindow("1-100"), (ProfileWindow{1, 100}));
  EXPECT_EQ(*ParseProfileWindow(""), std::nullopt);
}

TEST(ParseProfileWindow, SaysWhatWouldBeRight) {
  for (const char* text :
       {"100", "-", "5-", "-5", "5-4", "5--6", "a-b", "5-6 ", "1-101", "5-99999999999999999999"}) {
    const auto window = ParseProfileWindow(text);
    ASSERT_FALSE(window.ok()) << text;
    EXPECT_THAT(window.error().message, testing::StartsWith("LOCKSTEP_PROFILE: must name at most 100 steps"));
    EXPECT_THAT(window.error().message, testing::HasSubstr(std::string("not \"") + text + "\""));
  }
}

TEST(ParseProfileSteps, ReadsANumberAndIgnoresWhatFollowsABlank) {
  EXPECT_EQ(*ParseProfileSteps("5"), 5);
  EXPECT_EQ(*ParseProfileSteps("1"), 1);
  EXPECT_EQ(*ParseProfileSteps("100 once more"), 100);
}

TEST(ParseProfileSteps, SaysWhatWouldBeRight) {
  for (const char* text : {"", "0", "101", "-1", "soon", "5x", "5-9", " 5", "99999999999999999999"}) {
    const auto steps = ParseProfileSteps(text);
    ASSERT_FALSE(steps.ok()) << text;
    EXPECT_EQ(
        steps.error().message,
        "lockstep.dev/profile: must begin with the number of steps to record, 1 to 100, as in \"5\" or \"5 "
        "once more\", not \"" +
            std::string(text) + "\"");
  }
}

TEST(WindowFrom, TakesTheNextStepsThatThereAre) {
  EXPECT_EQ(WindowFrom(7, 5, 100, std::nullopt), (ProfileWindow{7, 11}));
  EXPECT_EQ(WindowFrom(97, 5, 100, std::nullopt), (ProfileWindow{97, 99}));
  EXPECT_EQ(WindowFrom(100, 5, 100, std::nullopt), std::nullopt);
}

TEST(WindowFrom, StartsAfterPlannedStepsThatItWouldOverlap) {
  const ProfileWindow planned{10, 19};
  EXPECT_EQ(WindowFrom(5, 5, 100, planned), (ProfileWindow{5, 9}));
  EXPECT_EQ(WindowFrom(6, 5, 100, planned), (ProfileWindow{20, 24}));
  EXPECT_EQ(WindowFrom(19, 5, 100, planned), (ProfileWindow{20, 24}));
  EXPECT_EQ(WindowFrom(20, 5, 100, planned), (ProfileWindow{20, 24}));
  EXPECT_EQ(WindowFrom(12, 5, 20, planned), std::nullopt);
}

TEST(TraceName, NamesStepsAndRank) {
  EXPECT_EQ(TraceName({100, 104}, 3), "profile/steps-100-104-rank-3.json");
}

}  // namespace
}  // namespace lockstep::api
