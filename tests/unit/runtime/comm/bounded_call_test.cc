#include "runtime/comm/bounded_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>

namespace lockstep::comm {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kAmple{60'000};
constexpr milliseconds kShort{50};

void NeverGivenUp(const std::string& problem) { FAIL() << problem; }

TEST(BoundedCall, ReturnsInTime) {
  int calls = 0;
  BoundedCall call({"aborting", kAmple, NeverGivenUp}, [&] { ++calls; });
  EXPECT_TRUE(call.Wait().ok());
  EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(calls, 1);
}

TEST(BoundedCall, IsNotMadeUnlessStarted) {
  int calls = 0;
  {
    const BoundedCall call({"aborting", kAmple, NeverGivenUp}, [&] { ++calls; });
  }
  EXPECT_EQ(calls, 0);
}

TEST(BoundedCall, GivesUpWhatHangs) {
  std::promise<void> wake;
  const auto hang = std::make_shared<std::shared_future<void>>(wake.get_future());
  std::promise<std::string> given_up;
  const auto start = Clock::now();
  {
    BoundedCall call(
        {"aborting the group", kShort, [&](const std::string& problem) { given_up.set_value(problem); }},
        [hang] { hang->wait(); });
    call.Start();
    EXPECT_LT(Clock::now() - start, kAmple / 2) << "the caller went on";
    const Result<void> outcome = call.Wait();
    ASSERT_FALSE(outcome.ok());
    EXPECT_EQ(outcome.error().code, ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(given_up.get_future().get(), "aborting the group: no end within 50 ms");
    EXPECT_GE(Clock::now() - start, kShort);
  }
  EXPECT_LT(Clock::now() - start, kAmple / 2);
  wake.set_value();
}

TEST(BoundedCall, IsMadeOnceHoweverManyAsk) {
  std::atomic<int> calls = 0;
  BoundedCall call({"aborting", kAmple, NeverGivenUp}, [&] { ++calls; });
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.emplace_back([&] {
        call.Start();
        EXPECT_TRUE(call.Wait().ok());
      });
    }
  }
  EXPECT_EQ(calls, 1);
}

TEST(BoundedCall, ReportsWhatWasThrown) {
  BoundedCall call({"aborting", kAmple, NeverGivenUp}, [] { throw std::runtime_error("no such group"); });
  const Result<void> outcome = call.Wait();
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ErrorCode::kAborted);
  EXPECT_EQ(outcome.error().message, "aborting: no such group");
}

}  // namespace
}  // namespace lockstep::comm
