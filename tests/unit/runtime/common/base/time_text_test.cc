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

TEST(ParseDuration, ReadsUnitsAndPlainSeconds) {
  const struct {
    const char* text;
    int64_t seconds;
  } cases[] = {{"90s", 90}, {"5m", 300}, {"1h", 3600}, {"1h30m", 5400}, {"2h0m5s", 7205}, {"90", 90}};
  for (const auto& test : cases) {
    const auto duration = ParseDuration(test.text);
    ASSERT_TRUE(duration.ok()) << test.text;
    EXPECT_EQ(duration->count(), test.seconds) << test.text;
  }
}

TEST(ParseDuration, RefusesWhatIsNone) {
  for (const char* text : {"", "m", "5 m", "-5s", "0", "0m", "5d", "1.5h", "30m1h", "5m5m", "1h30", "5ms",
                           "99999h", "99999999999s"}) {
    const auto duration = ParseDuration(text);
    ASSERT_FALSE(duration.ok()) << text;
    EXPECT_NE(duration.error().message.find("such as 90s, 5m"), std::string::npos);
  }
}

}  // namespace
}  // namespace lockstep
