// Jobs that use the same location, over an in-memory store.

#include "runtime/checkpoint/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "runtime/common/base/json.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"

namespace lockstep::checkpoint {
namespace {

using namespace std::chrono_literals;
using lockstep::testing::Eventually;
using lockstep::testing::FakeClock;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Any thread. It has a clock of its own.
class MemoryStore final : public ObjectStore {
 public:
  Result<void> Put(const std::string& name, std::string_view content) override {
    const std::lock_guard lock(mutex_);
    if (name == refused) {
      ++refusals;
      return Error{ErrorCode::kUnavailable, "away"};
    }
    objects_[name] = {std::string(content), clock.Now()};
    return {};
  }
  Result<std::string> Get(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(name);
    if (found == objects_.end()) return Error{ErrorCode::kNotFound, name};
    return found->second.first;
  }
  Result<void> Read(const std::string&, int64_t, std::span<char>) override { return {}; }
  Result<std::vector<ObjectInfo>> List() override {
    const std::lock_guard lock(mutex_);
    std::vector<ObjectInfo> found;
    for (const auto& [name, object] : objects_) {
      if (name != hidden) found.push_back({name, static_cast<int64_t>(object.first.size()), object.second});
    }
    hidden.clear();
    return found;
  }
  Result<void> Delete(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    objects_.erase(name);
    return {};
  }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "memory://" + name; }

  [[nodiscard]] std::vector<std::string> Names() {
    std::vector<std::string> names;
    const auto objects = List();
    for (const ObjectInfo& object : objects.value()) names.push_back(object.name);
    return names;
  }

  FakeClock clock;
  std::string hidden;   // omitted from the next listing
  std::string refused;  // its Put fails; set by Refuse
  std::atomic<int> refusals = 0;
  void Refuse(const std::string& name) {
    const std::lock_guard lock(mutex_);
    refused = name;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::pair<std::string, WallTime>> objects_;
};

class OwnershipTest : public ::testing::Test {
 protected:
  std::unique_ptr<Ownership> Job(const std::string& uid, Milliseconds renewal = 1h) {
    return std::make_unique<Ownership>(
        store_, protocol::JobIdentity{"default", "job-" + uid, uid},
        OwnershipOptions{.uri = "s3://bucket/mnist", .holder = "pod-of-" + uid, .renewal = renewal}, clock_);
  }
  // Runs `act` as another job between two checks.
  Ownership::Pause Meanwhile(std::function<void()> act = [] {}) {
    return [this, act](Milliseconds time) {
      waited_ += time;
      Pass(time);
      act();
      return true;
    };
  }
  void Pass(Milliseconds time) {
    clock_.Advance(time);
    store_.clock.Advance(time);
  }
  // Writes a marker as a running or dead process of the job does.
  void Mark(const std::string& uid, bool owns = true, const std::string& since = "2025") {
    EXPECT_TRUE(store_
                    .Put("owners/" + uid + ".json", DumpJson({{"jobUid", uid},
                                                              {"jobName", "job-" + uid},
                                                              {"owns", owns},
                                                              {"since", since},
                                                              {"time", std::to_string(++marks_)}}))
                    .ok());
  }

  FakeClock clock_;
  MemoryStore store_;
  Milliseconds waited_{0};
  int marks_ = 0;
};

TEST_F(OwnershipTest, TakesAnUnownedPlaceAtOnce) {
  ASSERT_TRUE(store_.Put("step-000000000001/manifest.json", "{}").ok());
  ASSERT_TRUE(store_.Put("owners/notes.txt", "of somebody").ok());
  const auto job = Job("b");
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_EQ(waited_, 0ms);
  const Json marker = *ParseJson(*store_.Get("owners/b.json"));
  EXPECT_EQ(StringAt(marker, {"jobUid"}), "b");
  EXPECT_EQ(StringAt(marker, {"jobName"}), "job-b");
  EXPECT_EQ(StringAt(marker, {"holder"}), "pod-of-b");
  EXPECT_TRUE(BoolAt(marker, {"owns"}, false));
  job->End();
  EXPECT_THAT(store_.Names(), ElementsAre("owners/notes.txt", "step-000000000001/manifest.json"));
}

TEST_F(OwnershipTest, IsRejectedWithTheOwnersNameWhileAnotherJobRuns) {
  Mark("a");
  const auto job = Job("b");
  const auto claimed = job->Claim(Meanwhile([&] { Mark("a"); }));
  ASSERT_FALSE(claimed.ok());
  EXPECT_EQ(claimed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(claimed.error().message, AllOf(HasSubstr("spec.checkpoint.uri: s3://bucket/mnist"),
                                             HasSubstr("\"job-a\" (uid a)"), HasSubstr("its own folder")));
  EXPECT_THAT(store_.Names(), ElementsAre("owners/a.json"));
  EXPECT_LT(waited_, kLease);
}

TEST_F(OwnershipTest, TakesOverWhatAKilledJobLeft) {
  Mark("a");
  const auto job = Job("b");
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_THAT(store_.Names(), ElementsAre("owners/b.json"));
  EXPECT_GT(waited_, kLease);
  EXPECT_LE(waited_, kLease + 2 * kCheckInterval);
}

TEST_F(OwnershipTest, TakesOverAtOnceWhatIsOldByTheStoresClock) {
  Mark("a");
  store_.clock.Advance(kLease + 1s);
  const auto job = Job("b");
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_EQ(waited_, 0ms);
  EXPECT_THAT(store_.Names(), ElementsAre("owners/b.json"));
}

// A clock that is far behind, or was set back, does not show how old a marker is.
TEST_F(OwnershipTest, WaitsNoLongerThanTheLeaseWhateverTheStoresClockSays) {
  store_.clock.Advance(24h);
  Mark("a");
  store_.clock.Advance(-24h);
  const auto job = Job("b");
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_LE(waited_, kLease + 2 * kCheckInterval);
}

TEST_F(OwnershipTest, GoesOnUnderItsOwnUid) {
  Mark("b");
  const auto job = Job("b");
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_EQ(waited_, 0ms);
}

TEST_F(OwnershipTest, GoesOnWhereItWasStopped) {
  Mark("a");
  const auto job = Job("b");
  const auto stopped = job->Claim([&](Milliseconds) {
    Pass(kLease - kCheckInterval);
    return false;
  });
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_LE(waited_, 3 * kCheckInterval);
}

TEST_F(OwnershipTest, WaitsUntilALaterClaimGivesWay) {
  const auto job = Job("b");
  Mark("a", /*owns=*/false, "2027");
  int pauses = 0;
  ASSERT_TRUE(job->Claim(Meanwhile([&] {
                   if (++pauses < 3) return Mark("a", /*owns=*/false, "2027");
                   EXPECT_TRUE(store_.Delete("owners/a.json").ok());
                 }))
                  .ok());
  EXPECT_EQ(pauses, 3);
}

TEST_F(OwnershipTest, GivesWayToAnEarlierClaim) {
  const auto job = Job("b");
  Mark("a", /*owns=*/false, "2025");
  const auto claimed = job->Claim(Meanwhile([&] { Mark("a", /*owns=*/false, "2025"); }));
  ASSERT_FALSE(claimed.ok());
  EXPECT_THAT(claimed.error().message, HasSubstr("job-a"));
}

// As Azure's store for a moment, while an object is being rewritten.
TEST_F(OwnershipTest, LooksTwice) {
  Mark("a");
  store_.hidden = "owners/a.json";
  const auto job = Job("b");
  EXPECT_FALSE(job->Claim(Meanwhile([&] { Mark("a"); })).ok());
}

// The other job wrote its marker after the first check, and waits. Otherwise each might give way to the
// other.
TEST_F(OwnershipTest, IgnoresAClaimThatIsLaterThanItsOwn) {
  Mark("a", /*owns=*/false, "2025");
  store_.hidden = "owners/a.json";
  const auto job = Job("b");
  EXPECT_TRUE(job->Claim(Meanwhile()).ok());
  EXPECT_EQ(waited_, 0ms);
}

TEST_F(OwnershipTest, TakesAMarkerThatCannotBeReadForAnOwners) {
  ASSERT_TRUE(store_.Put("owners/a.json", "{").ok());
  const auto job = Job("b");
  const auto claimed = job->Claim(Meanwhile([&] { ASSERT_TRUE(store_.Put("owners/a.json", "{{").ok()); }));
  ASSERT_FALSE(claimed.ok());
  EXPECT_THAT(claimed.error().message, HasSubstr("(uid a)"));
}

TEST_F(OwnershipTest, RenewsUntilAnotherProcessDoes) {
  const auto job = Job("b", 1ms);
  job->Hold();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store_.Delete("owners/b.json").ok());
    EXPECT_TRUE(Eventually([&] { return store_.Get("owners/b.json").ok(); }));
  }
  job->Release();
  job->Hold();
  ASSERT_TRUE(store_.Delete("owners/b.json").ok());
  EXPECT_TRUE(Eventually([&] { return store_.Get("owners/b.json").ok(); }));
  job->End();
  EXPECT_THAT(store_.Names(), ElementsAre());
}

TEST_F(OwnershipTest, ReportsThatAnotherJobTookThePlaceDuringAnOutage) {
  const auto job = Job("b", 1ms);
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  store_.Refuse("owners/b.json");
  ASSERT_TRUE(Eventually([&] { return store_.refusals > 0; }));
  EXPECT_EQ(job->lost(), std::nullopt);
  ASSERT_TRUE(store_.Delete("owners/b.json").ok());
  Mark("a");
  Pass(kLease + 1s);
  ASSERT_TRUE(Eventually([&] { return job->lost().has_value(); }));
  EXPECT_THAT(job->lost()->message, AllOf(HasSubstr("s3://bucket/mnist was taken over by job \"job-a\""),
                                          HasSubstr("nothing more is stored there")));
  EXPECT_THAT(store_.Names(), ElementsAre("owners/a.json")) << "it leaves the place to that job";
}

TEST_F(OwnershipTest, KeepsAPlaceThatNoJobTookDuringAnOutage) {
  const auto job = Job("b", 1ms);
  ASSERT_TRUE(job->Claim(Meanwhile()).ok());
  store_.Refuse("owners/b.json");
  ASSERT_TRUE(Eventually([&] { return store_.refusals > 0; }));
  ASSERT_TRUE(store_.Delete("owners/b.json").ok());
  Pass(kLease + 1s);
  store_.Refuse("");
  EXPECT_TRUE(Eventually([&] { return store_.Get("owners/b.json").ok(); }));
  EXPECT_EQ(job->lost(), std::nullopt);
}

// The jobs' clocks differ by hours, so the times in their markers do not show which one was first.
TEST_F(OwnershipTest, OneOfManyThatStartTogetherWins) {
  for (int repetition = 0; repetition < 20; ++repetition) {
    constexpr int kJobs = 4;
    MemoryStore store;
    std::atomic<int> winners = 0;
    std::atomic<int> refused = 0;
    {
      std::vector<std::jthread> jobs;
      for (int i = 0; i < kJobs; ++i) {
        jobs.emplace_back([&, i] {
          FakeClock clock;
          clock.Advance(((i * 7 + repetition) % kJobs) * 1h);
          const std::string uid(1, static_cast<char>('a' + i));
          Ownership job(store, {"default", uid, uid}, {.uri = "", .holder = "", .renewal = 1ms}, clock);
          // Its clock advances, so that no two of its markers are equal.
          const auto claimed = job.Claim([&](Milliseconds) {
            clock.Advance(1ms);
            std::this_thread::yield();
            return true;
          });
          ++(claimed.ok() ? winners : refused);
          // As its renewals do, until all others have seen them.
          EXPECT_TRUE(Eventually([&] {
            clock.Advance(1ms);
            return winners + refused == kJobs;
          }));
        });
      }
    }
    EXPECT_EQ(winners, 1) << "repetition " << repetition;
    EXPECT_EQ(refused, kJobs - 1);
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
