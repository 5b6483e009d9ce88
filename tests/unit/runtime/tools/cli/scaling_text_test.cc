#include "runtime/tools/cli/scaling_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/base/time_text.h"

namespace lockstep::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ScalingHints kHints{.nothing_measured = "Not measured.", .measure_more = "Measure more."};

std::vector<api::ScalingRecord> ThreeSizes() {
  return {{.world_size = 2,
           .samples_per_second = 640,
           .communication = 0.05,
           .data = 0.01,
           .steps = 120,
           .time = *ParseTime("2026-01-02T03:08:00Z")},
          {.world_size = 4,
           .samples_per_second = 1152,
           .communication = 0.12,
           .data = 0.01,
           .steps = 80,
           .time = *ParseTime("2026-01-02T03:09:30Z")},
          {.world_size = 8,
           .samples_per_second = 1280,
           .communication = 0.48,
           .data = 0.02,
           .steps = 95,
           .time = *ParseTime("2026-01-02T03:10:00Z")}};
}

command_line::Lines TextOf(const std::vector<api::ScalingRecord>& records) {
  return ScalingText(records, kHints, *ParseTime("2026-01-02T03:10:00Z"));
}

TEST(ScalingText, ShowsTheSizesAndRecommendsOne) {
  EXPECT_THAT(
      TextOf(ThreeSizes()),
      ElementsAre("RANKS  SAMPLES/S  PER RANK  EFFICIENCY  COMMUNICATION  DATA  STEPS  MEASURED",
                  "2      640        320       100 %       5 %            1 %   120    2 min ago",
                  "4      1152       288       90 %        12 %           1 %   80     30 s ago",
                  "8      1280       160       50 %        48 %           2 %   95     0 s ago", "",
                  "Recommended: 4 ranks, the largest measured size with an efficiency of at least 80 %. The "
                  "efficiency of 8 ranks is 50 %, limited mostly by communication: a rank waits for other "
                  "ranks in 48 % of its time, and with 2 ranks in 5 %."));
}

TEST(SpeedText, HasNoExponent) {
  EXPECT_EQ(SpeedText(8.12345), "8.123");
  EXPECT_EQ(SpeedText(41570.4), "41570");
}

TEST(ScalingText, NamesEachLimit) {
  const auto advice = [](const api::ScalingRecord& four) {
    return TextOf({{.world_size = 1, .samples_per_second = 100, .data = 0.1}, four}).back();
  };
  EXPECT_THAT(advice({.world_size = 4, .samples_per_second = 200, .data = 0.5}),
              HasSubstr("by data: a rank waits for samples in 50 % of its time, and with 1 rank in 10 %."));
  EXPECT_THAT(
      advice({.world_size = 4, .samples_per_second = 200, .data = 0.1}),
      HasSubstr("by computing: a rank computes 2 times as long for a sample as with 1 rank, because it has "
                "too little work or shares its processor with other ranks."));
}

TEST(ScalingText, EndsWithAHintWhereAnotherSizeHelps) {
  const std::vector<api::ScalingRecord> one = {{.world_size = 2, .samples_per_second = 640}};
  EXPECT_EQ(TextOf(one).back(), "Nothing can be compared: only one size was measured. Measure more.");
  EXPECT_EQ(
      TextOf({one[0], {.world_size = 4, .samples_per_second = 1200}}).back(),
      "Recommended: 4 ranks, the largest measured size with an efficiency of at least 80 %. Measure more.");
  EXPECT_EQ(ScalingText(one, {}, WallTime{}).back(), "Nothing can be compared: only one size was measured.");
  EXPECT_THAT(TextOf({}), ElementsAre("Not measured."));
}

TEST(ScalingText, IsAlsoJson) {
  const Json json = ScalingToJson(ThreeSizes(), kHints);
  EXPECT_EQ(json.at("recommendedWorldSize"), 4);
  EXPECT_EQ(json.at("sizes").size(), 3U);
  EXPECT_EQ(json.at("sizes")[1].at("efficiency"), 0.9);
  EXPECT_EQ(json.at("sizes")[1].at("time"), "2026-01-02T03:09:30Z");
  EXPECT_THAT(json.at("recommendation").get<std::string>(), HasSubstr("4 ranks"));
  EXPECT_FALSE(ScalingToJson({}, kHints).contains("recommendedWorldSize"));
}

}  // namespace
}  // namespace lockstep::cli
