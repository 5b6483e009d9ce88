#include "runtime/common/base/strings.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Strings, ContainsAnyFindsOneOfTheWords) {
  EXPECT_TRUE(ContainsAny("AWS Error ACCESS_DENIED", {"NO_SUCH_BUCKET", "ACCESS_DENIED"}));
  EXPECT_FALSE(ContainsAny("AWS Error SLOW_DOWN", {"NO_SUCH_BUCKET", "ACCESS_DENIED"}));
  EXPECT_FALSE(ContainsAny("text", {}));
}

TEST(Strings, SplitAndJoinAreInverse) {
  EXPECT_EQ(Split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(Join(Split("a,,b", ','), ","), "a,,b");
}

TEST(Strings, TruncateNeverCutsACharacter) {
  EXPECT_EQ(Truncate("short", 10), "short");
  EXPECT_EQ(Truncate("ääää", 6), "ä…");
}

TEST(Strings, RandomHexHasTheAskedLengthAndDiffers) {
  EXPECT_EQ(RandomHex(16).size(), 32U);
  EXPECT_NE(RandomHex(16), RandomHex(16));
}

}  // namespace
}  // namespace lockstep
