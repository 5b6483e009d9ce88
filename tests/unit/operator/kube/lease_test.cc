#include "operator/kube/lease.h"

#include <gtest/gtest.h>

namespace lockstep::kube {
namespace {

using namespace std::chrono_literals;

const SteadyTime kStart{1h};
const WallTime kWall{1000s};

LeaseRecord HeldBy(const std::string& holder, const std::string& renewed = "t1") {
  return {.holder = holder, .renew_time = renewed, .duration_seconds = 15, .transitions = 3};
}

TEST(LeaseTimings, MustLeaveRoomForRetries) {
  EXPECT_TRUE(ValidateTimings({}).ok());
  EXPECT_FALSE(ValidateTimings({.duration = 10s, .renew_deadline = 10s, .retry_period = 2s}).ok());
  EXPECT_FALSE(ValidateTimings({.duration = 15s, .renew_deadline = 2s, .retry_period = 2s}).ok());
}

TEST(LeaseObserver, TakesAFreeLease) {
  LeaseObserver observer("me", {});
  const auto decision = observer.Decide({}, kStart, kWall);
  EXPECT_EQ(decision.move, LeaseMove::kTake);
  EXPECT_EQ(decision.next.holder, "me");
  EXPECT_EQ(decision.next.transitions, 0);
  EXPECT_EQ(decision.next.duration_seconds, 15);
}

TEST(LeaseObserver, WaitsForAHolderItHasJustSeenWhateverItsTimestampSays) {
  LeaseObserver observer("me", {});
  EXPECT_EQ(observer.Decide(HeldBy("other"), kStart, kWall).move, LeaseMove::kWait);
  EXPECT_EQ(observer.Decide(HeldBy("other"), kStart + 15s, kWall).move, LeaseMove::kWait);
  const auto decision = observer.Decide(HeldBy("other"), kStart + 15s + 1ms, kWall);
  EXPECT_EQ(decision.move, LeaseMove::kTake);
  EXPECT_EQ(decision.next.transitions, 4);
}

TEST(LeaseObserver, ARenewalStartsTheClockAgain) {
  LeaseObserver observer("me", {});
  (void)observer.Decide(HeldBy("other", "t1"), kStart, kWall);
  (void)observer.Decide(HeldBy("other", "t2"), kStart + 14s, kWall);
  EXPECT_EQ(observer.Decide(HeldBy("other", "t2"), kStart + 20s, kWall).move, LeaseMove::kWait);
}

TEST(LeaseObserver, RenewsItsOwnAndKeepsWhenItBegan) {
  LeaseObserver observer("me", {});
  LeaseRecord mine = HeldBy("me");
  mine.acquire_time = "then";
  const auto decision = observer.Decide(mine, kStart, kWall);
  EXPECT_EQ(decision.move, LeaseMove::kRenew);
  EXPECT_EQ(decision.next.acquire_time, "then");
  EXPECT_EQ(decision.next.transitions, 3);
}

TEST(LeaseObserver, TakesAReleasedLeaseAtOnce) {
  LeaseObserver observer("me", {});
  EXPECT_EQ(observer.Decide(HeldBy(""), kStart, kWall).move, LeaseMove::kTake);
}

}  // namespace
}  // namespace lockstep::kube
