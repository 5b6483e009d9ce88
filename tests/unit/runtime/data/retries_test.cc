#include "runtime/data/retries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PauseBeforeRetry, GrowsToAFewSeconds) {
  EXPECT_EQ(PauseBeforeRetry(1), Milliseconds(500));
  EXPECT_EQ(PauseBeforeRetry(2), Milliseconds(1000));
  EXPECT_EQ(PauseBeforeRetry(5), Milliseconds(8000));
  EXPECT_EQ(PauseBeforeRetry(60), Milliseconds(8000));
}

TEST(WithRetries, OutlastsAnOutageWithinThePatienceAndReportsIt) {
  Milliseconds paused{0};
  std::vector<std::string> reported;
  const Retries retries{.pause = [&](Milliseconds time) { paused += time; },
                        .patience = Seconds(600),
                        .store_is_away =
                            [&](const std::optional<Error>& error) {
                              reported.push_back(error.has_value() ? error->message : "back");
                            }};
  const auto away_for = [&](Seconds outage) {
    paused = {};
    return WithRetries<int>(retries, [&]() -> Result<int> {
      if (paused >= outage) return 7;
      return Error{ErrorCode::kUnavailable, "refused"};
    });
  };
  EXPECT_EQ(away_for(Seconds(0)).value(), 7);
  EXPECT_THAT(reported, IsEmpty());
  EXPECT_EQ(away_for(Seconds(590)).value(), 7);
  EXPECT_THAT(reported, ElementsAre("refused", "back"));
  EXPECT_EQ(away_for(Seconds(700)).error().code, ErrorCode::kUnavailable);
}

// Otherwise a process that should stop could not end its step.
TEST(WithRetries, IsStoppedOnlyWhileItWaits) {
  const Retries retries{.is_stopped = [] { return true; }};
  EXPECT_EQ(WithRetries<int>(retries, [] { return 7; }).value(), 7);
  const Result<int> away = WithRetries<int>(retries, []() -> Result<int> {
    return Error{ErrorCode::kUnavailable, "away"};
  });
  EXPECT_EQ(away.error().code, ErrorCode::kCancelled);
}

TEST(RetriesOfFiles, LastAMinuteAtLeastAndShowLifeEachSecond) {
  Milliseconds paused{0};
  int signs = 0;
  const auto last = [&](Seconds patience) {
    const Retries retries = RetriesOfFiles({.pause =
                                                [&](Milliseconds time) {
                                                  paused += time;
                                                  EXPECT_LE(time, Seconds(1));
                                                },
                                            .patience = patience},
                                           [&] { ++signs; });
    const Result<int> away = WithRetries<int>(retries, []() -> Result<int> {
      return Error{ErrorCode::kUnavailable, "away"};
    });
    EXPECT_EQ(away.error().code, ErrorCode::kUnavailable);
    return std::exchange(paused, Milliseconds(0));
  };
  EXPECT_GE(last(Seconds(5)), Seconds(60));
  EXPECT_GE(signs, 60);
  EXPECT_GE(last(Seconds(300)), Seconds(300));
}

}  // namespace
}  // namespace lockstep::data
