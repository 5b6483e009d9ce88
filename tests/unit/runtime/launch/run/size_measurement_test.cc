#include "runtime/launch/run/size_measurement.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

constexpr int kMeasuredRanks = 2;

// Each step takes 32 samples and 0.25 s, 0.1 s of it waiting for ranks and 0.05 s for samples.
rendezvous::RendezvousView After(int64_t steps, int world_size = kMeasuredRanks) {
  const auto count = static_cast<double>(steps);
  rendezvous::RendezvousView view;
  view.world_size = world_size;
  view.measured_steps = {.steps = steps,
                         .samples = 32 * steps,
                         .seconds = 0.25 * count,
                         .communication_seconds = 0.1 * count,
                         .data_seconds = 0.05 * count};
  return view;
}

TEST(SizeMeasurement, BeginsAfterAFewSteps) {
  SizeMeasurement measurement(kMeasuredRanks, 10);
  for (const int64_t steps : {0, 4, 6, 15}) measurement.Take(After(steps));
  EXPECT_EQ(measurement.measured().steps, 9);
  EXPECT_FALSE(measurement.IsComplete());
  measurement.Take(After(16));
  EXPECT_TRUE(measurement.IsComplete());
  EXPECT_EQ(measurement.measured().steps, 10);
  EXPECT_EQ(measurement.measured().samples, 320);
  EXPECT_NEAR(measurement.measured().seconds, 2.5, 1e-9);
  EXPECT_NEAR(measurement.measured().communication_seconds, 1, 1e-9);
  EXPECT_NEAR(measurement.measured().data_seconds, 0.5, 1e-9);
}

TEST(SizeMeasurement, TakesLongEnough) {
  SizeMeasurement measurement(kMeasuredRanks, 10);
  rendezvous::RendezvousView view = After(5);
  measurement.Take(view);
  view.measured_steps.steps = 5000;
  view.measured_steps.seconds += 1.9;
  measurement.Take(view);
  EXPECT_FALSE(measurement.IsComplete());
  view.measured_steps.seconds += 0.1;
  measurement.Take(view);
  EXPECT_TRUE(measurement.IsComplete());
}

TEST(SizeMeasurement, CountsOnlyStepsWithAllRanksInOneRound) {
  SizeMeasurement measurement(kMeasuredRanks, 10);
  for (const int64_t steps : {5, 50}) measurement.Take(After(steps, 1));
  EXPECT_EQ(measurement.measured(), rendezvous::MeasuredSteps{});
  for (const int64_t steps : {5, 14}) measurement.Take(After(steps));
  for (const int64_t steps : {6, 8}) measurement.Take(After(steps));
  EXPECT_EQ(measurement.measured().steps, 2) << "the round was formed again";
}

TEST(SizeMeasurement, KeepsTheFirstFailure) {
  SizeMeasurement measurement(kMeasuredRanks, 10);
  rendezvous::RendezvousView view = After(6);
  view.changes = {{.round = 1, .cause = std::nullopt, .reason = "the job grew"}};
  measurement.Take(view);
  EXPECT_EQ(measurement.failure(), "");
  view.changes.push_back({.round = 2, .reason = "a connection broke", .is_repaired = true});
  view.changes.push_back({.round = 3, .reason = "another one", .is_repaired = true});
  measurement.Take(view);
  EXPECT_EQ(measurement.failure(), "a connection broke");
}

TEST(SizeMeasurement, WaitsUntilItIsKnownWhyARoundBroke) {
  SizeMeasurement measurement(kMeasuredRanks, 10);
  rendezvous::RendezvousView view = After(6);
  view.changes = {{.round = 1, .reason = "connection closed by peer"}};
  measurement.Take(view);
  EXPECT_EQ(measurement.failure(), "");
  view.changes = {{.round = 1, .reason = "killed by signal 9", .departures = {{.pod = "worker-1"}}}};
  measurement.Take(view);
  EXPECT_EQ(measurement.failure(), "killed by signal 9");
}

}  // namespace
}  // namespace lockstep::launch
