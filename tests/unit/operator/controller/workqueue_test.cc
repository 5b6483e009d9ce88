#include "operator/controller/workqueue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"

namespace lockstep::controller {
namespace {

using namespace std::chrono_literals;

class WorkQueueTest : public ::testing::Test {
 protected:
  std::string Take() {
    const auto item = queue_.TryGet();
    return item ? item->key : "";
  }
  testing::FakeClock clock_;
  WorkQueue queue_{clock_};
};

TEST_F(WorkQueueTest, HandsOutAKeyOnceHoweverOftenItWasAdded) {
  queue_.Add("a");
  queue_.Add("a");
  queue_.Add("b");
  EXPECT_EQ(queue_.depth(), 2U);
  EXPECT_EQ(Take(), "a");
  EXPECT_EQ(Take(), "b");
  EXPECT_EQ(Take(), "");
}

TEST_F(WorkQueueTest, AKeyAddedWhileItIsWorkedOnComesOnceMoreAfterwards) {
  queue_.Add("a");
  EXPECT_EQ(Take(), "a");
  queue_.Add("a");
  queue_.Add("a");
  EXPECT_EQ(Take(), "") << "never twice at once";
  queue_.Done("a");
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  EXPECT_EQ(Take(), "");
}

TEST_F(WorkQueueTest, FailuresComeBackTenASecondAfterTheFirstHundred) {
  for (int i = 0; i < 120; ++i) queue_.AddRateLimited("key-" + std::to_string(i));
  const auto take_all = [this] {
    int taken = 0;
    while (const auto item = queue_.TryGet()) {
      queue_.Done(item->key);
      ++taken;
    }
    return taken;
  };
  clock_.Advance(5ms);
  EXPECT_EQ(take_all(), 100);
  clock_.Advance(995ms);
  EXPECT_EQ(take_all(), 10);
  clock_.Advance(1s);
  EXPECT_EQ(take_all(), 10);
}

TEST_F(WorkQueueTest, OfSeveralDelaysTheEarliestWins) {
  queue_.AddAfter("a", 10s);
  queue_.AddAfter("a", 2s);
  queue_.AddAfter("a", 20s);
  clock_.Advance(1'999ms);
  EXPECT_EQ(Take(), "");
  clock_.Advance(1ms);
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  clock_.Advance(60s);
  EXPECT_EQ(Take(), "") << "the later ones are gone";
}

TEST_F(WorkQueueTest, BacksOffPerKeyUntilForgotten) {
  queue_.AddRateLimited("a");
  clock_.Advance(5ms);
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  queue_.AddRateLimited("a");
  clock_.Advance(5ms);
  EXPECT_EQ(Take(), "") << "twice as long now";
  clock_.Advance(5ms);
  EXPECT_EQ(Take(), "a");
  queue_.Done("a");
  queue_.Forget("a");
  queue_.AddRateLimited("a");
  clock_.Advance(5ms);
  EXPECT_EQ(Take(), "a");
}

TEST_F(WorkQueueTest, KeysOfLowPriorityWaitForTheOthersButGetEveryFourthTurn) {
  for (const char* key : {"low 1", "low 2", "low 3"}) queue_.Add(key, Priority::kLow);
  for (const char* key : {"1", "2", "3", "4"}) queue_.Add(key);
  EXPECT_EQ(queue_.depth(), 7U);
  std::vector<std::string> taken;
  while (const auto item = queue_.TryGet()) taken.push_back(item->key);
  EXPECT_EQ(taken, (std::vector<std::string>{"1", "2", "3", "low 1", "4", "low 2", "low 3"}));
}

TEST_F(WorkQueueTest, AKeyAddedWithBothPrioritiesHasTheNormalOne) {
  queue_.Add("low", Priority::kLow);
  queue_.Add("a", Priority::kLow);
  queue_.Add("a");
  queue_.Add("a", Priority::kLow);
  EXPECT_EQ(queue_.depth(), 2U);
  EXPECT_EQ(Take(), "a");
  queue_.Add("a", Priority::kLow);
  queue_.Add("a");
  queue_.Done("a");
  EXPECT_EQ(Take(), "a") << "while it was worked on";
  queue_.Done("a");
  queue_.AddAfter("b", 1s, Priority::kLow);
  queue_.AddAfter("b", 2s);
  clock_.Advance(1s);
  EXPECT_EQ(Take(), "b") << "while it waited for its time";
  EXPECT_EQ(Take(), "low");
  EXPECT_EQ(Take(), "");
}

TEST_F(WorkQueueTest, ReportsHowLongAKeyWaited) {
  queue_.Add("a");
  clock_.Advance(3s);
  EXPECT_EQ(queue_.TryGet()->waited, 3s);
}

TEST(KeyBackoff, IsCapped) {
  KeyBackoff backoff(5ms, 100ms);
  std::chrono::milliseconds last{};
  for (int i = 0; i < 100; ++i) last = backoff.Next("a");
  EXPECT_EQ(last, 100ms);
  EXPECT_EQ(backoff.failures("a"), 100);
}

TEST(WorkQueueThreads, StopEndsAWait) {
  const SystemClock clock;
  WorkQueue queue(clock);
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] { return queue.Get(stop.get_token()).has_value(); });
  stop.request_stop();
  EXPECT_FALSE(waiting.get());
}

TEST(WorkQueueThreads, ADelayedKeyWakesAWaiter) {
  const SystemClock clock;
  WorkQueue queue(clock);
  auto waiting = std::async(std::launch::async, [&] { return queue.Get({})->key; });
  queue.AddAfter("later", 500s);
  queue.AddAfter("a", 2ms);
  EXPECT_EQ(waiting.get(), "a");
}

TEST(WorkQueueThreads, NoKeyIsLostOrWorkedOnTwiceAtOnce) {
  const SystemClock clock;
  WorkQueue queue(clock);
  constexpr int kKeys = 20;
  constexpr int kAdds = 2000;
  std::vector<std::atomic<int>> busy(kKeys);
  std::atomic<int> overlaps = 0;
  std::vector<std::atomic<int>> added(kKeys);
  std::vector<std::atomic<int>> seen(kKeys);  // the number of adds before the newest run
  std::stop_source stop;
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < 4; ++i) {
      workers.emplace_back([&] {
        while (const auto item = queue.Get(stop.get_token())) {
          const auto key = static_cast<std::size_t>(std::stoi(item->key));
          overlaps += busy[key].exchange(1);
          seen[key] = added[key].load();
          busy[key] = 0;
          queue.Done(item->key);
        }
      });
    }
    for (int i = 0; i < kAdds; ++i) {
      const auto key = static_cast<std::size_t>(i % kKeys);
      ++added[key];
      queue.Add(std::to_string(key));
    }
    const auto all_seen = [&] {
      return std::all_of(seen.begin(), seen.end(), [](const auto& count) { return count == kAdds / kKeys; });
    };
    EXPECT_TRUE(testing::Eventually(all_seen));
    stop.request_stop();
  }
  EXPECT_EQ(overlaps, 0);
}

}  // namespace
}  // namespace lockstep::controller
