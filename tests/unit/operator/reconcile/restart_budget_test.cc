#include "operator/reconcile/restart_budget.h"

#include <gtest/gtest.h>

namespace lockstep::reconcile {
namespace {

using std::chrono::seconds;

constexpr WallTime kStart{seconds(1'000'000)};

TEST(RestartBudget, CountsAllRestartsWithoutAWindow) {
  api::TrainingJobStatus status;
  ChargeAttempt(status, {}, 1, kStart);
  ChargeAttempt(status, {}, 2, kStart + seconds(1'000'000));
  EXPECT_EQ(UsedRestarts(status, {}, kStart + seconds(9'000'000)), 2);
  EXPECT_FALSE(status.restart_window.has_value());
}

TEST(RestartBudget, IsFullAgainAWindowAfterTheFirstRestart) {
  const api::FailurePolicy policy{.max_restarts = 3, .restart_window_seconds = 60};
  api::TrainingJobStatus status;
  const struct {
    int at;
    int32_t attempt;  // 0: none is charged
    int32_t used;
  } cases[] = {{0, 1, 1},  {30, 2, 2},  {59, 0, 2},  {60, 0, 0},
               {70, 3, 1}, {125, 4, 2}, {130, 0, 0}, {131, 4, 0}};
  for (const auto& test : cases) {
    ChargeAttempt(status, policy, test.attempt, kStart + seconds(test.at));
    EXPECT_EQ(UsedRestarts(status, policy, kStart + seconds(test.at)), test.used) << test.at;
  }
  EXPECT_EQ(status.attempt, 4) << "people see them all";
}

TEST(RestartBudget, ForgetsWhatWasBeforeTheWindowWasAskedFor) {
  api::TrainingJobStatus status;
  ChargeAttempt(status, {}, 5, kStart);
  EXPECT_EQ(UsedRestarts(status, {.restart_window_seconds = 60}, kStart), 0);
}

}  // namespace
}  // namespace lockstep::reconcile
