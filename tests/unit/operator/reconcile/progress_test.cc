#include "operator/reconcile/progress.h"

#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"

namespace lockstep::reconcile {
namespace {

using testing::JobWorld;

// How a job scales: status.scaling.
class ScalingStatus : public ::testing::Test {
 protected:
  ScalingStatus() { world_.Running(0).Running(1); }

  // A pass some time later, in a world of `ranks`.
  std::vector<api::ScalingRecord> Pass(int ranks, const rendezvous::MeasuredSteps& measured) {
    world_.observed().now += kProgressPeriod;
    world_.Round(1, {0, 1}, ++step_);
    world_.observed().rendezvous.world_size = ranks;
    world_.observed().rendezvous.measured_steps = measured;
    world_.observed().job.status = MakePlan(world_.observed()).status;
    return world_.observed().job.status.scaling;
  }
  WallTime now() { return world_.observed().now; }

  JobWorld world_;
  int64_t step_ = 0;
};

TEST_F(ScalingStatus, HasAnEntryForEachWorldSizeThatWasMeasuredLongEnough) {
  EXPECT_TRUE(Pass(2, {.steps = 9, .samples = 576, .seconds = 100}).empty()) << "too few steps";
  EXPECT_TRUE(Pass(2, {.steps = 100, .samples = 6400, .seconds = 9}).empty()) << "too short";
  const auto records =
      Pass(2, {.steps = 40, .samples = 2560, .seconds = 20, .communication_seconds = 5, .data_seconds = 2});
  const api::ScalingRecord two{2, 128, 0.25, 0.1, 40, now()};
  EXPECT_EQ(records, std::vector{two});
  Pass(1, {.steps = 10, .samples = 640, .seconds = 10});
  const api::ScalingRecord one{1, 64, 0, 0, 10, now()};
  EXPECT_EQ(Pass(4, {.steps = 1, .samples = 64, .seconds = 1}), (std::vector{one, two}));
}

TEST_F(ScalingStatus, ReplacesTheEntryOfASizeOnceANewRoundWasMeasuredLongEnough) {
  const auto before = Pass(2, {.steps = 40, .samples = 2560, .seconds = 20});
  EXPECT_EQ(Pass(2, {.steps = 5, .samples = 320, .seconds = 5}), before);
  EXPECT_EQ(Pass(2, {}), before) << "the operator was restarted";
  const auto after = Pass(2, {.steps = 20, .samples = 1280, .seconds = 20});
  EXPECT_EQ(after, (std::vector<api::ScalingRecord>{{2, 64, 0, 0, 20, now()}}));
}

TEST_F(ScalingStatus, IsWrittenTogetherWithProgress) {
  const auto before = Pass(2, {.steps = 40, .samples = 2560, .seconds = 20});
  ASSERT_EQ(before.size(), 1U);
  world_.observed().now += kProgressPeriod / 2;
  world_.Round(1, {0, 1}, ++step_);
  world_.observed().rendezvous.measured_steps = {.steps = 50, .samples = 3200, .seconds = 25};
  EXPECT_EQ(MakePlan(world_.observed()).status.scaling, before);
}

TEST_F(ScalingStatus, DropsTheSizeThatWasMeasuredLongestAgo) {
  for (int ranks = 16; ranks >= 1; --ranks) Pass(ranks, {.steps = 40, .samples = 2560, .seconds = 20});
  const auto records = Pass(17, {.steps = 40, .samples = 2560, .seconds = 20});
  ASSERT_EQ(records.size(), 16U);
  EXPECT_EQ(records.front().world_size, 1);
  EXPECT_EQ(records[14].world_size, 15);
  EXPECT_EQ(records.back().world_size, 17);
}

TEST_F(ScalingStatus, OfAProgramHasOnlyTheSizesWhoseSamplesAreKnown) {
  world_.observed().job.spec.training.reset();
  EXPECT_TRUE(Pass(2, {.steps = 40, .samples = 0, .seconds = 20}).empty());
  EXPECT_TRUE(Pass(2, {.steps = 40, .samples = -8, .seconds = 20}).empty()) << "a faulty report";
  const auto records = Pass(2, {.steps = 40, .samples = 400, .seconds = 20});
  EXPECT_EQ(records, (std::vector<api::ScalingRecord>{{2, 20, 0, 0, 40, now()}}));
}

}  // namespace
}  // namespace lockstep::reconcile
