#include "runtime/common/command_line/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::command_line {
namespace {

using ::testing::ElementsAre;

TEST(DurationText, HasTwoUnitsAtMost) {
  for (const auto& [seconds, text] :
       {std::pair(-1.0, "0 s"), std::pair(0.42, "0.4 s"), std::pair(9.96, "10 s"), std::pair(59.0, "59 s"),
        std::pair(200.0, "3 min 20 s"), std::pair(7200.0, "2 h"), std::pair(7500.0, "2 h 5 min"),
        std::pair(273'600.0, "3 d 4 h")})
    EXPECT_EQ(DurationText(seconds), text);
}

TEST(OneLine, HoldsNothingThatControlsATerminal) { EXPECT_EQ(OneLine("a\033[2Jb\tc\nd"), "a?[2Jb?c"); }

TEST(Columns, AreEquallyWide) {
  EXPECT_THAT(Columns({{"A", "LONG", "C"}, {"abc", "", "d"}}), ElementsAre("A    LONG  C", "abc  -     d"));
}

}  // namespace
}  // namespace lockstep::command_line
