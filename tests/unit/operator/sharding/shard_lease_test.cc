#include "operator/kube/leader_election.h"

#include <gtest/gtest.h>

#include <future>

#include "operator/kube/rest_client.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"
#include "tests/support/fake_transport.h"

namespace lockstep::kube {
namespace {

using namespace std::chrono_literals;

const ObjectKey kLease{"system", "leader"};
// The deadline is one that no test reaches on the clock of the machine.
constexpr LeaseTimings kFast{
    .duration = 120s, .renew_deadline = 100s, .retry_period = 2ms, .look_period = 2ms};

LeaderElectionOptions Options(std::string identity, std::function<void()> on_expired = {}) {
  if (!on_expired) on_expired = [] { ADD_FAILURE() << "the lease has expired"; };
  return {.lease = kLease,
          .identity = std::move(identity),
          .on_expired = std::move(on_expired),
          .timings = kFast};
}

TEST(LeaderElection, OnlyOneLeadsAndAReleaseHandsOverAtOnce) {
  testing::FakeKube kube;
  const SystemClock clock;
  LeaderElection first(kube, clock, Options("first"));
  LeaderElection second(kube, clock, Options("second"));
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
  LeaderElection election(kube, clock, Options("me"));
  std::stop_source stop;
  ASSERT_TRUE(election.Acquire(stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return election.Keep(stop.get_token()); });
  ASSERT_TRUE(
      kube.Patch(kLeases, kLease, {{"spec", {{"holderIdentity", "other"}, {"renewTime", "now"}}}}, {}).ok());
  const auto lost = kept.get();
  ASSERT_FALSE(lost.ok());
}

// What a leader may still do while the API server fails in one way or another.
class LeaderElectionInAnOutage : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(election_.Acquire(stop_.get_token())); }
  void Keep() {
    kept_ = std::async(std::launch::async, [this] { return election_.Keep(stop_.get_token()); });
  }
  void ExpectToExpireWithTheDeadline() {
    std::future<void> expired = expired_.get_future();
    EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout) << "a short outage is no loss";
    clock_.Advance(99'999ms);
    EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout);
    clock_.Advance(1ms);
    EXPECT_EQ(expired.wait_for(60s), std::future_status::ready);
  }
  void TearDown() override {
    stop_.request_stop();
    if (kept_.valid()) {
      EXPECT_TRUE(kept_.get().ok());
    }
  }

  testing::FakeKube kube_;
  testing::FakeClock clock_;
  std::promise<void> expired_;
  LeaderElection election_{kube_, clock_, Options("me", [this] { expired_.set_value(); })};
  std::stop_source stop_;
  std::future<Result<void>> kept_;
};

TEST_F(LeaderElectionInAnOutage, ExpiresBeforeOthersMayTakeOver) {
  kube_.fault = [](const auto&, const auto&, const auto&) { return Error{ErrorCode::kUnavailable, "away"}; };
  Keep();
  ExpectToExpireWithTheDeadline();
}

TEST_F(LeaderElectionInAnOutage, ExpiresWhileARequestHangs) {
  std::promise<void> answer;
  std::promise<void> sent;
  kube_.fault = [&, hang = answer.get_future().share(), first = true](const auto&, const auto&,
                                                                      const auto&) mutable {
    if (std::exchange(first, false)) sent.set_value();
    hang.wait();
    return Error{ErrorCode::kUnavailable, "away"};
  };
  Keep();
  sent.get_future().wait();
  ExpectToExpireWithTheDeadline();
  answer.set_value();
}

TEST_F(LeaderElectionInAnOutage, ExpiresBeforeItHasBegunToKeepTheLease) { ExpectToExpireWithTheDeadline(); }

TEST_F(LeaderElectionInAnOutage, DoesNotExpireOnceReleased) {
  election_.Release();
  std::future<void> expired = expired_.get_future();
  clock_.Advance(500s);
  EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout);
}

// The deadline counts from the moment before the request: others may have seen the renewal at once.
TEST_F(LeaderElectionInAnOutage, CountsFromBeforeTheRequestThatRenewed) {
  std::promise<void> renewed;
  kube_.lose_answer = [&, first = true](const auto&, const auto&, const auto&) mutable {
    if (!std::exchange(first, false)) return true;
    clock_.Advance(60s);  // the answer is slow
    renewed.set_value();
    return false;
  };
  Keep();
  renewed.get_future().wait();
  std::future<void> expired = expired_.get_future();
  EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout);
  clock_.Advance(40s);
  EXPECT_EQ(expired.wait_for(60s), std::future_status::ready);
}

TEST(LeaderElection, DoesNotLeadByAnAnswerThatCameTooLate) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  LeaderElection election(kube, clock, Options("me"));
  int writes = 0;
  kube.lose_answer = [&](const auto&, const auto&, const auto&) {
    if (++writes == 1) clock.Advance(100s);
    return false;
  };
  EXPECT_TRUE(election.Acquire(std::stop_source().get_token()));
  EXPECT_EQ(writes, 2) << "it renews before it leads";
}

TEST(LeaderElection, NoRequestOutlivesTheDeadline) {
  testing::FakeTransport transport;
  testing::FakeClock clock;
  std::vector<int64_t> timeouts;
  bool is_away = false;
  transport.answer = [&](const http::Request& request) -> Result<http::Response> {
    if (!is_away) {
      return request.method == "GET" ? http::Response{.status = 404, .body = "{}"}
                                     : http::Response{.status = 201, .body = request.body};
    }
    timeouts.push_back(request.timeout.count());
    clock.Advance(request.timeout);
    return Error{ErrorCode::kDeadlineExceeded, "no answer"};
  };
  std::promise<void> expired;
  std::optional<LeaderElection> election;
  RestClient client(transport, {.time_left = [&] { return election->RequestTime(); }});
  LeaderElectionOptions options = Options("me", [&] { expired.set_value(); });
  options.timings.renew_deadline = 16s;
  election.emplace(client, clock, std::move(options));
  std::stop_source stop;
  ASSERT_TRUE(election->Acquire(stop.get_token()));
  is_away = true;
  auto kept = std::async(std::launch::async, [&] { return election->Keep(stop.get_token()); });
  EXPECT_EQ(expired.get_future().wait_for(60s), std::future_status::ready);
  stop.request_stop();
  EXPECT_TRUE(kept.get().ok());
  EXPECT_EQ(timeouts, (std::vector<int64_t>{8'000, 8'000})) << "then no time is left";
}

TEST(LeaderElection, StopsOnRequest) {
  testing::FakeKube kube;
  const SystemClock clock;
  LeaderElection election(kube, clock, Options("me"));
  std::stop_source stop;
  ASSERT_TRUE(election.Acquire(stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return election.Keep(stop.get_token()); });
  stop.request_stop();
  EXPECT_TRUE(kept.get().ok());
}

}  // namespace
}  // namespace lockstep::kube
