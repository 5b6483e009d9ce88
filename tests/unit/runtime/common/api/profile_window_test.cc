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

TEST(TraceName, NamesStepsAndRank) {
  EXPECT_EQ(TraceName({100, 104}, 3), "profile/steps-100-104-rank-3.json");
}

}  // namespace
}  // namespace lockstep::api
