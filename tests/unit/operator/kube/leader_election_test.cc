#include "operator/kube/leader_election.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"

namespace lockstep::kube {
namespace {

using namespace std::chrono_literals;

const ObjectKey kLease{"system", "leader"};
constexpr LeaseTimings kFast{.duration = 2s, .renew_deadline = 1s, .retry_period = 2ms, .look_period = 2ms};

TEST(LeaderElection, OnlyOneLeadsAndAReleaseHandsOverAtOnce) {
  testing::FakeKube kube;
  const SystemClock clock;
  LeaderElection first(kube, clock, kLease, "first", kFast);
  LeaderElection second(kube, clock, kLease, "second", kFast);
  std::stop_source stop;
  ASSERT_TRUE(first.Acquire(stop.get_token()));
  auto waiting = std::async(std::launch::async, [&] { return second.Acquire(stop.get_token()); });
  EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
  first.Release();
  EXPECT_TRUE(waiting.get());
  EXPECT_EQ(LeaseRecordFromJson(*kube.Get(kLeases, kLease)).holder, "second");
  first.Release();
  EXPECT_EQ(LeaseRecordFromJson(*kube.Get(kLeases, kLease)).holder, "second") << "not ours to release";
}

TEST(LeaderElection, KeepEndsWhenAnotherTookTheLease) {
  testing::FakeKube kube;
  const SystemClock clock;
  LeaderElection election(kube, clock, kLease, "me", kFast);
  std::stop_source stop;
  ASSERT_TRUE(election.Acquire(stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return election.Keep(stop.get_token()); });
  ASSERT_TRUE(
      kube.Patch(kLeases, kLease, {{"spec", {{"holderIdentity", "other"}, {"renewTime", "now"}}}}, {}).ok());
  const auto lost = kept.get();
  ASSERT_FALSE(lost.ok());
}

TEST(LeaderElection, KeepGivesUpBeforeOthersMayTakeOver) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  LeaderElection election(kube, clock, kLease, "me", kFast);
  std::stop_source stop;
  ASSERT_TRUE(election.Acquire(stop.get_token()));
  kube.fault = [](const auto&, const auto&, const auto&) { return Error{ErrorCode::kUnavailable, "away"}; };
  auto kept = std::async(std::launch::async, [&] { return election.Keep(stop.get_token()); });
  EXPECT_EQ(kept.wait_for(50ms), std::future_status::timeout) << "a short outage is no loss";
  clock.Advance(1'001ms);
  const auto lost = kept.get();
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
}

TEST(LeaderElection, StopsOnRequest) {
  testing::FakeKube kube;
  const SystemClock clock;
  LeaderElection election(kube, clock, kLease, "me", kFast);
  std::stop_source stop;
  ASSERT_TRUE(election.Acquire(stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return election.Keep(stop.get_token()); });
  stop.request_stop();
  EXPECT_TRUE(kept.get().ok());
}

}  // namespace
}  // namespace lockstep::kube
