#include "runtime/train/saves/save_interval.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

constexpr double kFourHours = 4 * 3600;

// The share of time that is lost: one save per interval, and half an interval per failure.
double Lost(double interval, double cost, double between_failures) {
  return cost / interval + interval / 2 / between_failures;
}

TEST(BestIntervalTest, LosesLeast) {
  for (const double cost : {0.003, 0.5, 20.0, 300.0}) {
    for (const double between_failures : {600.0, kFourHours, 30 * 24 * 3600.0}) {
      const double best = BestInterval(cost, 0, between_failures);
      for (const double other : {0.5, 0.9, 1.1, 2.0})
        EXPECT_LT(Lost(best, cost, between_failures), Lost(best * other, cost, between_failures))
            << cost << " " << between_failures << " " << other;
    }
  }
  EXPECT_DOUBLE_EQ(BestInterval(2, 0, 3600), 120);
}

TEST(BestIntervalTest, IsNeverShorterThanASaveTakesToBeStored) {
  EXPECT_DOUBLE_EQ(BestInterval(2, 119, 3600), 120);
  EXPECT_DOUBLE_EQ(BestInterval(2, 300, 3600), 300);
  EXPECT_DOUBLE_EQ(BestInterval(0, 300, 3600), 300);
}

TEST(BestIntervalTest, IsNoLongerThanTheTimeBetweenFailures) {
  EXPECT_DOUBLE_EQ(BestInterval(1000, 0, 600), 600);
}

TEST(SaveIntervalTest, SavesSoonToSeeWhatItCosts) {
  EXPECT_DOUBLE_EQ(SaveInterval(kFourHours).seconds(), 60);
  EXPECT_DOUBLE_EQ(SaveInterval(20).seconds(), 20);
}

TEST(SaveIntervalTest, GoesByTheNewestSaves) {
  SaveInterval interval(3600);
  interval.Saved(1, 10);
  interval.Saved(3, 10);
  EXPECT_DOUBLE_EQ(interval.seconds(), 120) << "their mean";
  for (int i = 0; i < 8; ++i) interval.Saved(8, 10);
  EXPECT_DOUBLE_EQ(interval.seconds(), 240) << "the first are forgotten";
  interval.Saved(8, 900);
  EXPECT_DOUBLE_EQ(interval.seconds(), 900) << "the store was slow once and may be again";
}

TEST(SaveIntervalTest, LogsLargeChangesOnly) {
  SaveInterval interval(3600);
  EXPECT_TRUE(interval.TakeChange());
  EXPECT_FALSE(interval.TakeChange());
  interval.Saved(2, 1);
  EXPECT_TRUE(interval.TakeChange());
  interval.Saved(2.2, 1);
  EXPECT_FALSE(interval.TakeChange());
  for (int i = 0; i < 8; ++i) interval.Saved(0.1, 1);
  EXPECT_TRUE(interval.TakeChange());
}

}  // namespace
}  // namespace lockstep::train
