#include "runtime/common/api/scaling_advice.h"

#include <gtest/gtest.h>

namespace lockstep::api {
namespace {

ScalingRecord Size(int32_t ranks, double samples_per_second, double communication = 0, double data = 0) {
  return {.world_size = ranks,
          .samples_per_second = samples_per_second,
          .communication = communication,
          .data = data,
          .steps = 10,
          .time = std::nullopt};
}

TEST(RecordOf, DividesTheSamplesByTheirTime) {
  const ScalingRecord record =
      RecordOf({.steps = 20, .samples = 1280, .seconds = 40, .communication_seconds = 10, .data_seconds = 4},
               /*world_size=*/2);
  EXPECT_EQ(record.world_size, 2);
  EXPECT_DOUBLE_EQ(record.samples_per_second, 32);
  EXPECT_DOUBLE_EQ(record.communication, 0.25);
  EXPECT_DOUBLE_EQ(record.data, 0.1);
  EXPECT_EQ(record.steps, 20);
}

ScalingLimit LimitOf(const ScalingRecord& larger) {
  const ScalingAdvice advice = AdviceFrom({Size(1, 100, 0.1, 0.1), larger});
  EXPECT_EQ(advice.recommended, 1);
  return advice.shortfall.value().limit;
}

TEST(ScalingAdvice, RecommendsTheLargestSizeThatIsEfficientEnough) {
  const ScalingAdvice advice = AdviceFrom({Size(8, 400), Size(2, 200), Size(4, 320), Size(16, 410)});
  ASSERT_EQ(advice.sizes.size(), 4U);
  EXPECT_EQ(advice.sizes[0].record.world_size, 2);
  EXPECT_DOUBLE_EQ(advice.sizes[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(advice.sizes[1].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(advice.sizes[2].efficiency, 0.5);
  EXPECT_EQ(advice.recommended, 4);
  EXPECT_EQ(advice.shortfall.value().size.record.world_size, 8);
}

TEST(ScalingAdvice, NamesThePartOfTheTimeForASampleThatGrewMost) {
  EXPECT_EQ(LimitOf(Size(4, 200, 0.5, 0.1)), ScalingLimit::kCommunication);
  EXPECT_EQ(LimitOf(Size(4, 200, 0.1, 0.5)), ScalingLimit::kData);
  EXPECT_EQ(LimitOf(Size(4, 200, 0.1, 0.1)), ScalingLimit::kCompute);
}

TEST(ScalingAdvice, SaysHowMuchLongerARankComputes) {
  const ScalingAdvice advice = AdviceFrom({Size(1, 100, 0, 0.2), Size(4, 200, 0.2, 0.2)});
  EXPECT_DOUBLE_EQ(advice.shortfall.value().compute_growth, 1.5);
}

TEST(ScalingAdvice, HasNoShortfallIfTheLargestSizeIsEfficientEnough) {
  const ScalingAdvice advice = AdviceFrom({Size(1, 100), Size(2, 110), Size(4, 390)});
  EXPECT_EQ(advice.recommended, 4);
  EXPECT_FALSE(advice.shortfall.has_value());
}

TEST(ScalingAdvice, LeavesOutWhatIsNoMeasurement) {
  EXPECT_TRUE(AdviceFrom({Size(0, 100), Size(4, 0)}).sizes.empty());
  EXPECT_EQ(AdviceFrom({}).recommended, 0);
}

}  // namespace
}  // namespace lockstep::api
