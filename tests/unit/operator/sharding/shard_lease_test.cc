#include "operator/sharding/shard_lease.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <string>

#include "operator/kube/rest_client.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_kube.h"
#include "tests/support/fake_transport.h"

namespace lockstep::sharding {
namespace {

using namespace std::chrono_literals;

const kube::ObjectKey kLease{"system", "leader"};
// The deadline is far beyond the duration of any test.
constexpr kube::LeaseTimings kFast{
    .duration = 120s, .renew_deadline = 100s, .retry_period = 2ms, .look_period = 2ms};

ShardLeaseOptions Options(std::string identity, std::function<void()> on_expired = {}) {
  if (!on_expired) on_expired = [] { ADD_FAILURE() << "the lease has expired"; };
  return {.lease = kLease,
          .identity = std::move(identity),
          .work_on = [](const ShardSet& shards) { return shards; },
          .on_expired = std::move(on_expired),
          .timings = kFast};
}

ShardTable TableIn(testing::FakeKube& kube) { return TableFromLease(*kube.Get(kube::kLeases, kLease)); }

// A replica that renews until it is destroyed.
class KeptLease {
 public:
  KeptLease(testing::FakeKube& kube, const Clock& clock, const std::string& identity)
      : lease_(kube, clock, OptionsOf(identity)) {
    EXPECT_TRUE(lease_.Join(identity + ":29400", stop_.get_token()));
    kept_ = std::async(std::launch::async, [this] { return lease_.Keep(stop_.get_token()); });
  }
  ~KeptLease() { EXPECT_TRUE(Stop().ok()); }

  Result<void> Stop() {
    stop_.request_stop();
    return kept_.valid() ? kept_.get() : Result<void>();
  }
  ShardLease& lease() { return lease_; }
  [[nodiscard]] ShardSet open() const { return {open_.load()}; }
  // Until then closed shards are still in use.
  std::atomic<bool> is_busy = false;

 private:
  ShardLeaseOptions OptionsOf(const std::string& identity) {
    ShardLeaseOptions options = Options(identity);
    options.authorities = [identity] { return "authority of " + identity; };
    options.work_on = [this](const ShardSet& shards) {
      open_ = shards.to_ulong();
      return is_busy ? ShardSet().set() : shards;
    };
    return options;
  }

  std::atomic<uint64_t> open_ = 0;
  std::stop_source stop_;
  ShardLease lease_;
  std::future<Result<void>> kept_;
};

TEST(ShardLease, ReplicasShareTheShardsAndTakeThoseOfOneThatLeaves) {
  testing::FakeKube kube;
  const SystemClock clock;
  KeptLease first(kube, clock, "first");
  EXPECT_TRUE(testing::Eventually([&] { return first.open().all(); }));
  {
    KeptLease second(kube, clock, "second");
    EXPECT_TRUE(
        testing::Eventually([&] { return first.open().count() == 8 && second.open() == ~first.open(); }));
    EXPECT_TRUE(testing::Eventually([&] {
      for (std::size_t shard = 0; shard < kShards; ++shard) {
        const std::string address = first.open()[shard] ? "" : "second:29400";
        if (first.lease().AddressOf(shard) != address) return false;
      }
      return true;
    }));
    EXPECT_TRUE(second.Stop().ok());
    second.lease().Leave();
  }
  EXPECT_TRUE(testing::Eventually([&] { return first.open().all(); }));
  EXPECT_EQ(first.lease().Replicas(), std::vector<std::string>{"first"});
  EXPECT_TRUE(first.Stop().ok());
  first.lease().Leave();
  EXPECT_EQ(kube::LeaseRecordFromJson(*kube.Get(kube::kLeases, kLease)).holder, "");
}

// Before it reconciles any job.
TEST(ShardLease, KnowsTheAuthoritiesOfTheOthersWhenItHasJoined) {
  testing::FakeKube kube;
  const SystemClock clock;
  KeptLease first(kube, clock, "first");
  EXPECT_TRUE(first.lease().AuthoritiesOfOthers().empty());
  {
    KeptLease second(kube, clock, "second");
    EXPECT_EQ(second.lease().AuthoritiesOfOthers(), std::set<std::string>{"authority of first"});
    const std::set<std::string> of_second{"authority of second"};
    EXPECT_TRUE(testing::Eventually([&] { return first.lease().AuthoritiesOfOthers() == of_second; }));
    EXPECT_TRUE(second.Stop().ok());
    second.lease().Leave();
  }
  EXPECT_TRUE(testing::Eventually([&] { return first.lease().AuthoritiesOfOthers().empty(); }));
}

TEST(ShardLease, HandsAShardOverOnceNothingWorksOnIt) {
  testing::FakeKube kube;
  const SystemClock clock;
  KeptLease first(kube, clock, "first");
  first.is_busy = true;
  KeptLease second(kube, clock, "second");
  EXPECT_TRUE(testing::Eventually([&] { return first.open().count() == 8; }));
  EXPECT_TRUE(ShardsOf(TableIn(kube), "first").all()) << "they are closed, and still worked on";
  first.is_busy = false;
  EXPECT_TRUE(testing::Eventually([&] { return second.open().count() == 8; }));
}

TEST(ShardLease, AnOlderOperatorAndReplicasNeverHoldTheLeaseTogether) {
  testing::FakeKube kube;
  const SystemClock clock;
  Json lease = {{"metadata", {{"namespace", kLease.name_space}, {"name", kLease.name}}},
                {"spec", {{"holderIdentity", "older"}, {"leaseDurationSeconds", 15}, {"renewTime", "t1"}}}};
  ASSERT_TRUE(kube.Create(kube::kLeases, lease).ok());
  ShardLease replica(kube, clock, Options("me"));
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] { return replica.Join("", stop.get_token()); });
  EXPECT_EQ(waiting.wait_for(50ms), std::future_status::timeout);
  EXPECT_EQ(kube.writes().size(), 1U) << "the lease is as the older one has written it";
  ASSERT_TRUE(kube.Patch(kube::kLeases, kLease, {{"spec", {{"holderIdentity", ""}}}}, {}).ok());
  EXPECT_TRUE(waiting.get());
  EXPECT_EQ(kube::LeaseRecordFromJson(*kube.Get(kube::kLeases, kLease)).holder, "me");
}

TEST(ShardLease, AWriteOfAnotherReplicaInBetweenCostsOneMoreLook) {
  testing::FakeKube kube;
  const SystemClock clock;
  ShardLease replica(kube, clock, Options("me"));
  int conflicts = 0;
  kube.fault = [&](const auto&, const auto&, const auto&) -> std::optional<Error> {
    if (++conflicts > 3) return std::nullopt;
    return Error{ErrorCode::kConflict, "changed"};
  };
  EXPECT_TRUE(replica.Join("", std::stop_source().get_token()));
  EXPECT_EQ(conflicts, 4);
}

TEST(ShardLease, ARestartedProcessOfThePodContinuesAtOnce) {
  testing::FakeKube kube;
  const SystemClock clock;
  const std::stop_token never;
  {
    ShardLease killed(kube, clock, Options("pod_1"));
    ASSERT_TRUE(killed.Join("", never));
  }
  ShardLeaseOptions options = Options("pod_2");
  options.is_pod = true;
  ShardLease next(kube, clock, options);
  ASSERT_TRUE(next.Join("", never));
  EXPECT_TRUE(ShardsOf(TableIn(kube), "pod_2").all());
  EXPECT_EQ(next.Replicas(), std::vector<std::string>{"pod_2"});
}

// The replica is in the table, but the answer to its write was lost.
TEST(ShardLease, KeepsWhatAWriteTookWhoseAnswerWasLost) {
  testing::FakeKube kube;
  const SystemClock clock;
  kube.lose_answer = [first = true](const auto&, const auto&, const auto&) mutable {
    return std::exchange(first, false);
  };
  KeptLease replica(kube, clock, "me");
  EXPECT_TRUE(testing::Eventually([&] { return replica.open().all(); }));
}

TEST(ShardLease, KeepEndsWhenOthersHaveTakenTheLease) {
  testing::FakeKube kube;
  const SystemClock clock;
  ShardLease lease(kube, clock, Options("me"));
  std::stop_source stop;
  ASSERT_TRUE(lease.Join("", stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return lease.Keep(stop.get_token()); });
  ASSERT_TRUE(
      kube.Patch(kube::kLeases, kLease, {{"spec", {{"holderIdentity", "other"}, {"renewTime", "now"}}}}, {})
          .ok());
  const auto lost = kept.get();
  ASSERT_FALSE(lost.ok());
  lease.Leave();
  EXPECT_EQ(kube::LeaseRecordFromJson(*kube.Get(kube::kLeases, kLease)).holder, "other")
      << "not ours to leave";
}

// What a replica may still do while the API server fails in different ways.
class ShardLeaseInAnOutage : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(lease_.Join("", stop_.get_token())); }
  void Keep() {
    kept_ = std::async(std::launch::async, [this] { return lease_.Keep(stop_.get_token()); });
  }
  void ExpectToExpireWithTheDeadline(Milliseconds passed = 0ms) {
    std::future<void> expired = expired_.get_future();
    EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout) << "a short outage is no loss";
    clock_.Advance(99'999ms - passed);
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
  ShardLease lease_{kube_, clock_, Options("me", [this] { expired_.set_value(); })};
  std::stop_source stop_;
  std::future<Result<void>> kept_;
};

TEST_F(ShardLeaseInAnOutage, ExpiresBeforeOthersMayTakeOver) {
  kube_.fault = [](const auto&, const auto&, const auto&) { return Error{ErrorCode::kUnavailable, "away"}; };
  Keep();
  ExpectToExpireWithTheDeadline();
}

TEST_F(ShardLeaseInAnOutage, ExpiresWhileARequestHangs) {
  std::promise<void> answer;
  std::promise<void> sent;
  kube_.fault = [&, hang = answer.get_future().share(), first = true](const auto&, const auto&,
                                                                      const auto&) mutable {
    if (std::exchange(first, false)) sent.set_value();
    hang.wait();
    return Error{ErrorCode::kUnavailable, "away"};
  };
  clock_.Advance(kFast.retry_period);
  Keep();
  sent.get_future().wait();
  ExpectToExpireWithTheDeadline(kFast.retry_period);
  answer.set_value();
}

TEST_F(ShardLeaseInAnOutage, ExpiresBeforeItHasBegunToKeepTheLease) { ExpectToExpireWithTheDeadline(); }

TEST_F(ShardLeaseInAnOutage, DoesNotExpireOnceItHasLeft) {
  lease_.Leave();
  std::future<void> expired = expired_.get_future();
  clock_.Advance(500s);
  EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout);
}

// The deadline counts from before the request: others may have observed the renewal at once.
TEST_F(ShardLeaseInAnOutage, CountsFromBeforeTheRequestThatRenewed) {
  std::promise<void> renewed;
  kube_.lose_answer = [&, first = true](const auto&, const auto&, const auto&) mutable {
    if (!std::exchange(first, false)) return true;
    clock_.Advance(60s);  // the answer is slow
    renewed.set_value();
    return false;
  };
  clock_.Advance(kFast.retry_period);
  Keep();
  renewed.get_future().wait();
  std::future<void> expired = expired_.get_future();
  EXPECT_EQ(expired.wait_for(50ms), std::future_status::timeout);
  clock_.Advance(40s);
  EXPECT_EQ(expired.wait_for(60s), std::future_status::ready);
}

TEST(ShardLease, DoesNotJoinByAnAnswerThatCameTooLate) {
  testing::FakeKube kube;
  testing::FakeClock clock;
  ShardLease lease(kube, clock, Options("me"));
  int writes = 0;
  kube.lose_answer = [&](const auto&, const auto&, const auto&) {
    if (++writes == 1) clock.Advance(100s);
    return false;
  };
  EXPECT_TRUE(lease.Join("", std::stop_source().get_token()));
  EXPECT_EQ(writes, 2) << "it renews before it works";
}

TEST(ShardLease, NoRequestOutlivesTheDeadline) {
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
  std::optional<ShardLease> lease;
  kube::RestClient client(transport, {.time_left = [&] { return lease->RequestTime(); }});
  ShardLeaseOptions options = Options("me", [&] { expired.set_value(); });
  options.timings.renew_deadline = 16s;
  lease.emplace(client, clock, std::move(options));
  std::stop_source stop;
  ASSERT_TRUE(lease->Join("", stop.get_token()));
  is_away = true;
  auto kept = std::async(std::launch::async, [&] { return lease->Keep(stop.get_token()); });
  EXPECT_EQ(expired.get_future().wait_for(60s), std::future_status::ready);
  stop.request_stop();
  EXPECT_TRUE(kept.get().ok());
  EXPECT_EQ(timeouts, (std::vector<int64_t>{8'000, 8'000})) << "then no time is left";
}

TEST(ShardLease, StopsOnRequest) {
  testing::FakeKube kube;
  const SystemClock clock;
  ShardLease lease(kube, clock, Options("me"));
  std::stop_source stop;
  ASSERT_TRUE(lease.Join("", stop.get_token()));
  auto kept = std::async(std::launch::async, [&] { return lease.Keep(stop.get_token()); });
  stop.request_stop();
  EXPECT_TRUE(kept.get().ok());
}

}  // namespace
}  // namespace lockstep::sharding
