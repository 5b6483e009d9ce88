#include "runtime/train/loop/speed.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(SpeedsFrom, TakesTheMedianForWhoDoesNotKnow) {
  EXPECT_EQ(SpeedsFrom({0, 0}), (std::vector<double>{1, 1}));
  EXPECT_EQ(SpeedsFrom({30, 0, 10, 20}), (std::vector<double>{30, 20, 10, 20}));
}

class SpeedMeterTest : public ::testing::Test {
 protected:
  int64_t After(int steps, int64_t samples, double seconds) {
    for (int i = 0; i < steps; ++i) meter_.Committed(1, samples);
    phases_.Add(TrainPhase::kForward, seconds / 2);
    phases_.Add(TrainPhase::kBackward, seconds / 2);
    phases_.Add(TrainPhase::kReduce, 1000);  // time that depends on other ranks
    return meter_.Measure();
  }

  const SystemClock clock_;
  PhaseClock phases_{clock_};
  SpeedMeter meter_{phases_};
};

TEST_F(SpeedMeterTest, MeasuresWhatWasComputedSinceTheLastTime) {
  EXPECT_EQ(meter_.Measure(), 0) << "not known yet";
  EXPECT_EQ(After(10, 8, 4), 20'000);
  EXPECT_EQ(After(20, 8, 16), 10'000);
}

TEST_F(SpeedMeterTest, AFewStepsDecideNothing) {
  EXPECT_EQ(After(9, 8, 100), 0);
  EXPECT_EQ(After(1, 8, 0), 800);
  EXPECT_EQ(After(1, 8, 100), 800);
}

}  // namespace
}  // namespace lockstep::train
