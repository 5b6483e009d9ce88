#include "runtime/common/rendezvous/scaling.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

// Each step takes 8 samples and 1 s: 0.5 s of forward and backward, 0.3 s of waiting for ranks and 0.2 s for samples.
protocol::Progress After(int64_t steps, int64_t round = 1) {
  const auto count = static_cast<double>(steps);
  return {.round = round,
          .step = 100 + steps,
          .steps_total = steps,
          .global_samples_total = 8 * steps,
          .phase_seconds = {{"forward", 0.2 * count},
                            {"backward", 0.3 * count},
                            {"reduce", 0.3 * count},
                            {"data", 0.2 * count}}};
}

void ExpectSteps(const MeasuredSteps& measured, int64_t steps) {
  const auto count = static_cast<double>(steps);
  EXPECT_EQ(measured.steps, steps);
  EXPECT_EQ(measured.samples, 8 * steps);
  EXPECT_NEAR(measured.seconds, count, 1e-9);
  EXPECT_NEAR(measured.communication_seconds, 0.3 * count, 1e-9);
  EXPECT_NEAR(measured.data_seconds, 0.2 * count, 1e-9);
}

TEST(Scaling, MeasuresFromTheFirstStepsOfARound) {
  Scaling scaling;
  EXPECT_EQ(scaling.MeasuredIn(1), MeasuredSteps{});
  scaling.Take(1, After(1));
  EXPECT_EQ(scaling.MeasuredIn(1), MeasuredSteps{});
  scaling.Take(1, After(3));
  scaling.Take(1, After(3));
  ExpectSteps(scaling.MeasuredIn(1), 0);
  scaling.Take(1, After(13));
  ExpectSteps(scaling.MeasuredIn(1), 10);
  EXPECT_EQ(scaling.MeasuredIn(2), MeasuredSteps{}) << "nothing is known about the next round";
}

TEST(Scaling, LeavesOutWhatIsNoPartOfAStep) {
  Scaling scaling;
  for (const int64_t steps : {1, 2}) scaling.Take(1, After(steps));
  protocol::Progress later = After(12);
  for (const char* phase : {"sync", "evaluate", "checkpoint"}) later.phase_seconds[phase] = 100;
  scaling.Take(1, later);
  ExpectSteps(scaling.MeasuredIn(1), 10);
}

TEST(Scaling, BeginsAgainWhenTheWorldGrows) {
  Scaling scaling;
  for (const int64_t steps : {1, 2, 50}) scaling.Take(1, After(steps));
  for (const int64_t steps : {51, 52, 55}) scaling.Take(2, After(steps, 2));
  ExpectSteps(scaling.MeasuredIn(2), 3);
  EXPECT_EQ(scaling.MeasuredIn(1), MeasuredSteps{});
}

TEST(Scaling, IgnoresAMemberThatReportsAnEarlierRoundLate) {
  Scaling scaling;
  for (const int64_t steps : {1, 2, 12}) scaling.Take(2, After(steps, 2));
  scaling.Take(2, After(900, 1));
  ExpectSteps(scaling.MeasuredIn(2), 10);
}

// The members formed the round again among themselves.
TEST(Scaling, BeginsAgainWithANewProcessOfRankZeroInTheSameRound) {
  Scaling scaling;
  for (const int64_t steps : {1, 2, 50}) scaling.Take(1, After(steps));
  for (const int64_t steps : {1, 2}) scaling.Take(1, After(steps));
  ExpectSteps(scaling.MeasuredIn(1), 0);
  scaling.Take(1, After(7));
  ExpectSteps(scaling.MeasuredIn(1), 5);
}

TEST(Scaling, DoesNotCountTheTimeOfARepeatedStep) {
  Scaling scaling;
  for (const int64_t steps : {1, 2, 50}) scaling.Take(1, After(steps));
  for (const int64_t steps : {50, 51, 57}) {
    protocol::Progress progress = After(steps);
    progress.repeated_steps_total = 1;
    if (steps > 50) progress.phase_seconds["reduce"] += 30;  // until the collective failed
    scaling.Take(1, progress);
  }
  ExpectSteps(scaling.MeasuredIn(1), 6);
}

// Within a window, a report has the times and the number of steps of the last window, which may have ended in
// an earlier round.
TEST(Scaling, CountsWindowsOfSeveralStepsWhenTheyEnd) {
  Scaling scaling;
  for (const int64_t steps : {32, 64, 96, 128}) {
    for (const int64_t under_way : {10, 20}) {
      protocol::Progress progress = After(steps);
      progress.steps_under_way = under_way;
      if (steps > 32) progress.phase_seconds["reduce"] += 30;  // between the rounds
      scaling.Take(1, progress);
    }
  }
  ExpectSteps(scaling.MeasuredIn(1), 64);
}

}  // namespace
}  // namespace lockstep::rendezvous
