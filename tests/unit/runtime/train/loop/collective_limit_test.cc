#include "runtime/train/loop/collective_limit.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

using namespace std::chrono_literals;

TEST(CollectiveLimit, IsLongerThanAnyWaitThatTheHealthPolicyAllows) {
  EXPECT_GT(CollectiveLimit({.first_step_timeout_seconds = 1800}, 1), 2 * 1800s);
  EXPECT_GT(CollectiveLimit({.first_step_timeout_seconds = 60, .step_timeout_seconds = 7200}, 1), 2 * 7200s);
  EXPECT_GT(CollectiveLimit({.first_step_timeout_seconds = 60, .step_timeout_factor = 50}, 1), 2 * 50 * 60s);
}

TEST(CollectiveLimit, CountsTheStepsOfAWindow) {
  EXPECT_GT(CollectiveLimit({.first_step_timeout_seconds = 60, .step_timeout_factor = 2}, 500),
            500 * 2 * 60s);
}

TEST(CollectiveLimit, FitsIntoAClock) {
  constexpr double kYear = 31'536'000;
  const auto limit =
      CollectiveLimit({.first_step_timeout_seconds = kYear, .step_timeout_factor = 10'000}, 1'000'000);
  EXPECT_GT(limit, 365 * 24h);
  EXPECT_GT(std::chrono::steady_clock::now() + limit, std::chrono::steady_clock::now());
}

}  // namespace
}  // namespace lockstep::train
