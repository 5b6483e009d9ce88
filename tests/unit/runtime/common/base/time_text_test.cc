#include "runtime/common/base/time_text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(TimeText, RoundTripsWhatKubernetesWrites) {
  const auto parsed = ParseTime("2026-03-01T12:34:56.123456Z");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(FormatMicroTime(*parsed), "2026-03-01T12:34:56.123456Z");
  EXPECT_EQ(FormatTime(*parsed), "2026-03-01T12:34:56Z");
}

TEST(TimeText, AppliesTheZone) {
  EXPECT_EQ(FormatTime(*ParseTime("2026-03-01T01:30:00+02:00")), "2026-02-28T23:30:00Z");
}

TEST(TimeText, RefusesWhatIsNotATime) {
  for (const char* text :
       {"", "yesterday", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00Zx"}) {
    EXPECT_FALSE(ParseTime(text).ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep
