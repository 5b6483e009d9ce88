#include "runtime/train/step/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::train {
namespace {

using api::ScheduleName;
using api::ScheduleSpec;

struct Case {
  const char* name;
  ScheduleSpec schedule;
  int64_t step;
  double expected;  // of a base rate of 0.1 over 1000 steps
};

TEST(LearningRate, FollowsTheScheduleAtItsCornersAndBetween) {
  const ScheduleSpec step_decay{.name = ScheduleName::kStep, .decay_every_steps = 100, .decay_factor = 0.5};
  const ScheduleSpec warm_step{
      .name = ScheduleName::kStep, .warmup_steps = 50, .decay_every_steps = 100, .decay_factor = 0.5};
  const ScheduleSpec cosine{.name = ScheduleName::kCosine, .min_learning_rate = 0.01};
  const ScheduleSpec warm_cosine{.name = ScheduleName::kCosine, .warmup_steps = 100};
  const ScheduleSpec polynomial{.name = ScheduleName::kPolynomial, .power = 2};
  const Case cases[] = {
      {"constant, first", {}, 0, 0.1},
      {"constant, last", {}, 999, 0.1},
      {"warm-up, first step already learns", {.warmup_steps = 10}, 0, 0.01},
      {"warm-up, half", {.warmup_steps = 10}, 4, 0.05},
      {"warm-up, its last step", {.warmup_steps = 10}, 9, 0.1},
      {"step, before the first decay", step_decay, 99, 0.1},
      {"step, after it", step_decay, 100, 0.05},
      {"step, after the third", step_decay, 399, 0.0125},
      {"step counts from the end of the warm-up", warm_step, 149, 0.1},
      {"step after warm-up", warm_step, 150, 0.05},
      {"cosine, first", cosine, 0, 0.1},
      {"cosine, half", cosine, 500, 0.01 + 0.09 * 0.5 * (1 + std::cos(M_PI * 500 / 999))},
      {"cosine ends at its floor", cosine, 999, 0.01},
      {"cosine begins after the warm-up", warm_cosine, 100, 0.1},
      {"cosine with warm-up ends at zero", warm_cosine, 999, 0},
      {"polynomial, first", polynomial, 0, 0.1},
      {"polynomial, last", polynomial, 999, 0},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(LearningRate(c.schedule, 0.1, c.step, 1000), c.expected, 1e-12) << c.name;
  }
}

TEST(LearningRate, GrowsWithTheBatchWhereItIsMeantForAnother) {
  api::TrainingSpec training;
  training.optimizer.learning_rate = 0.1;
  training.global_batch_size = 1024;
  EXPECT_EQ(api::BaseLearningRate(training), 0.1);
  training.schedule.base_batch_size = 256;
  EXPECT_EQ(api::BaseLearningRate(training), 0.4);
  training.global_batch_size = 64;
  EXPECT_EQ(api::BaseLearningRate(training), 0.025);
}

TEST(LearningRate, IsFiniteWhereTheWarmUpIsAsLongAsTheTraining) {
  const ScheduleSpec schedule{.name = ScheduleName::kCosine, .warmup_steps = 10};
  for (int64_t step = 0; step < 12; ++step) EXPECT_TRUE(std::isfinite(LearningRate(schedule, 0.1, step, 10)));
}

}  // namespace
}  // namespace lockstep::train
