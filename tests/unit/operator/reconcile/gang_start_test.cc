#include "operator/reconcile/gang_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <list>

#include "operator/reconcile/gang.h"
#include "operator/reconcile/plan.h"
#include "operator/reconcile/status.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using api::GangProvider;
using std::chrono::seconds;
using testing::ActionsOf;
using testing::ConditionOf;
using ::testing::ElementsAre;
using testing::EventsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobWorld;

// ---- pods without a node, with any scheduler

// Three of four pods have a node; the fourth has waited for this long.
JobWorld PartialGang(int seconds_waited) {
  JobWorld world;
  world.Replicas(4).Running(0).Running(1).Running(2).Pending(3);
  world.observed().pods[3].created = world.observed().now - seconds(seconds_waited);
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.schedule_timeout_seconds = 60};
  return world;
}

TEST(GangStart, GivesAllPlacesBackOnceTheTimeHasPassed) {
  JobWorld world = PartialGang(59);
  const Plan early = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(early), IsEmpty());
  EXPECT_EQ(early.requeue_after, seconds(1));
  EXPECT_FALSE(early.status.gang.has_value());
  world.observed().now += seconds(1);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "the status first";
  EXPECT_EQ(plan.status.gang, (api::GangStatus{1, world.observed().now}));
  world.observed().job.status = plan.status;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-0", "delete job-worker-1", "delete job-worker-2",
                          "delete job-worker-3"));
}

TEST(GangStart, GivesAllPlacesOfALargeGangBackInOnePass) {
  JobWorld world;
  const auto replicas = static_cast<int32_t>(3 * kPodsPerPass);
  world.Replicas(replicas);
  for (int32_t slot = 0; slot < replicas; ++slot) world.Pending(slot);
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.schedule_timeout_seconds = 60};
  world.observed().job.status.gang = api::GangStatus{1, world.observed().now};
  EXPECT_EQ(ActionsOf(MakePlan(world.observed())).size(), 3 * kPodsPerPass);
}

TEST(GangStart, TriesAgainAfterAWhileThatGrowsAndDiffersBetweenJobs) {
  JobWorld world;
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.schedule_timeout_seconds = 60};
  std::set<std::chrono::milliseconds> waits;
  for (const char* uid : {"a", "b", "c"}) {
    world.observed().job.metadata.uid = uid;
    world.SyncObjects();
    world.observed().job.status.gang = api::GangStatus{1, world.observed().now};
    const Plan plan = MakePlan(world.observed());
    EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "no pod is created";
    ASSERT_TRUE(plan.requeue_after.has_value());
    waits.insert(*plan.requeue_after);
    world.observed().job.status.gang = api::GangStatus{2, world.observed().now};
    EXPECT_GE(*MakePlan(world.observed()).requeue_after, seconds(10));
  }
  EXPECT_EQ(waits.size(), 3U);
  EXPECT_GE(*waits.begin(), seconds(5));
  EXPECT_LE(*waits.rbegin(), seconds(15));
  world.observed().now += seconds(31);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("create job-worker-0", "create job-worker-1"));
}

TEST(GangStart, TheFirstRoundIsOfTheWholeGang) {
  JobWorld world;
  world.Elastic(1, 4).Replicas(4);
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.min_count = 3};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->min_members, 3);
  world.observed().job.status.conditions = {
      {.type = std::string(api::condition::kInitialized), .status = api::ConditionStatus::kTrue}};
  EXPECT_EQ(MakePlan(world.observed()).rendezvous->min_members, 1);
}

TEST(GangStart, IsNoMatterOnceEnoughPodsHaveTheirPlaces) {
  JobWorld world = PartialGang(9999);
  world.observed().job.spec.scheduling_policy.gang->min_count = 3;
  EXPECT_FALSE(MakePlan(world.observed()).status.gang.has_value());
}

TEST(GangStart, NeverTakesPlacesFromAJobThatHasTrained) {
  JobWorld world = PartialGang(9999);
  world.Round(1, {0, 1, 2}, 5);
  world.observed().job.status.conditions = {
      {.type = std::string(api::condition::kInitialized), .status = api::ConditionStatus::kTrue}};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_FALSE(plan.status.gang.has_value());
}

// ---- pods that the API server rejects

const Error kQuota{ErrorCode::kForbidden, "403 exceeded quota: gpus"};

// Three of four pods were created and have a node; the fourth is rejected from now on.
JobWorld RefusedGang(std::optional<api::GangPolicy> gang) {
  JobWorld world;
  world.observed().served = {KeyOfKind(kCoschedulingGroups)};
  world.observed().job.spec.scheduling_policy.gang = std::move(gang);
  world.Replicas(4).Running(0).Running(1).Running(2);
  if (const auto group = DesiredPodGroup(world.observed().job, world.observed().served))
    world.observed().owned[KeyOfKind(group->resource)] = group->object;
  api::TrainingJobStatus& status = world.observed().job.status;
  status = StatusAfterRefusal(world.observed(), MakePlan(world.observed()).status, kQuota);
  return world;
}

TEST(GangStart, GivesAllPodsBackOnceTheRestHasBeenRefusedForTooLong) {
  for (const GangProvider provider : {GangProvider::kNone, GangProvider::kCoscheduling}) {
    JobWorld world = RefusedGang(api::GangPolicy{.provider = provider, .schedule_timeout_seconds = 60});
    world.observed().now += seconds(59);
    const Plan early = MakePlan(world.observed());
    EXPECT_THAT(ActionsOf(early), ElementsAre("create job-worker-3"));
    EXPECT_FALSE(early.status.gang.has_value());
    world.observed().now += seconds(1);
    const Plan plan = MakePlan(world.observed());
    EXPECT_THAT(ActionsOf(plan), IsEmpty()) << "the status first";
    EXPECT_EQ(plan.status.gang, (api::GangStatus{1, world.observed().now}));
    ASSERT_THAT(EventsOf(plan), ElementsAre("GangReleased"));
    EXPECT_THAT(plan.events[0].note, HasSubstr("exceeded quota: gpus"));
    world.observed().job.status = plan.status;
    EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
                ElementsAre("delete job-worker-0", "delete job-worker-1", "delete job-worker-2"));
  }
}

TEST(GangStart, JobsThatNameNoTimeGiveTheirPodsBackAfterFiveMinutesOfRefusal) {
  for (const auto& gang : {std::optional<api::GangPolicy>(), std::optional(api::GangPolicy{})}) {
    JobWorld world = RefusedGang(gang);
    world.observed().now += seconds(299);
    EXPECT_FALSE(MakePlan(world.observed()).status.gang.has_value());
    world.observed().now += seconds(1);
    const Plan plan = MakePlan(world.observed());
    EXPECT_EQ(plan.status.gang, (api::GangStatus{1, world.observed().now}));
    EXPECT_THAT(plan.events.at(0).note, HasSubstr("within 300 s"));
  }
}

TEST(GangStart, SaysWhatItWasRefusedUntilItTriesAgainAfterAMinuteOrMore) {
  JobWorld world =
      RefusedGang(api::GangPolicy{.provider = GangProvider::kNone, .schedule_timeout_seconds = 60});
  world.observed().now += seconds(60);
  world.observed().job.status = MakePlan(world.observed()).status;
  world.observed().pods.clear();
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_GE(*plan.requeue_after, seconds(65)) << "any other job has tried again by then";
  EXPECT_LE(*plan.requeue_after, seconds(75));
  EXPECT_EQ(ConditionOf(plan, api::condition::kStalled).reason, "PodRejected");
  world.observed().now += seconds(75);
  const Plan again = MakePlan(world.observed());
  EXPECT_EQ(ActionsOf(again).size(), 4U);
  world.Running(0);
  world.observed().pods[0].created = world.observed().now;
  world.observed().job.status = StatusAfterRefusal(world.observed(), again.status, kQuota);
  world.observed().now += seconds(59);
  EXPECT_EQ(MakePlan(world.observed()).status.gang->releases, 1)
      << "the time counts from the pods that it holds";
  world.observed().now += seconds(1);
  EXPECT_EQ(MakePlan(world.observed()).status.gang->releases, 2);
}

TEST(GangStart, GivesNothingBackWhereEnoughPodsWereAdmitted) {
  JobWorld world =
      RefusedGang(api::GangPolicy{.provider = GangProvider::kNone, .schedule_timeout_seconds = 60});
  world.observed().job.spec.scheduling_policy.gang->min_count = 3;
  world.observed().now += seconds(9999);
  EXPECT_FALSE(MakePlan(world.observed()).status.gang.has_value());
}

// Jobs of eight pods in a namespace with a quota of twelve, each reconciled as the controller would.
class SharedQuota {
 public:
  struct Member {
    JobWorld world;
    WallTime next{};
    int failures = 0;
  };

  explicit SharedQuota(const std::vector<std::string>& uids, seconds apart) {
    for (const std::string& uid : uids) {
      Member& member = members_.emplace_back();
      member.world.observed().job.metadata.uid = uid;
      member.world.observed().job.spec.scheduling_policy.gang =
          api::GangPolicy{.schedule_timeout_seconds = 60};
      member.world.Replicas(8);
      now_ = member.next = member.world.observed().now + apart * static_cast<int>(members_.size());
      for (int slot = 0; slot < 6; ++slot) AddPod(member, slot);
    }
    now_ = members_.front().next;
  }

  // The first job that has all its pods; null if none has within the time.
  Member* FirstToStart(seconds limit) {
    const WallTime end = now_ + limit;
    while (now_ < end) {
      Member& next = *std::min_element(members_.begin(), members_.end(),
                                       [](const Member& a, const Member& b) { return a.next < b.next; });
      now_ = next.next;
      Look(next);
      if (next.world.observed().pods.size() == 8) return &next;
    }
    return nullptr;
  }
  void Finish(Member* member) {
    std::erase_if(members_, [&](const Member& entry) { return &entry == member; });
  }

 private:
  void AddPod(Member& member, int32_t slot) { member.world.Add(slot, PodPhase::kRunning).created = now_; }
  std::size_t Used() {
    std::size_t used = 0;
    for (Member& member : members_) used += member.world.observed().pods.size();
    return used;
  }
  void Look(Member& member) {
    Observed& observed = member.world.observed();
    observed.now = now_;
    const Plan plan = MakePlan(observed);
    bool is_refused = false;
    for (const PlannedAction& entry : plan.actions) {
      if (const auto* created = std::get_if<CreatePod>(&entry.action); created != nullptr) {
        is_refused = is_refused || Used() == 12;
        const std::string name = StringAt(created->object, {"metadata", "name"});
        if (!is_refused) AddPod(member, name.back() - '0');
      }
      if (const auto* deleted = std::get_if<DeletePod>(&entry.action); deleted != nullptr)
        std::erase_if(observed.pods, [&](const Pod& pod) { return pod.name == deleted->name; });
    }
    const api::TrainingJobStatus before = observed.job.status;
    observed.job.status = is_refused ? StatusAfterRefusal(observed, plan.status, kQuota) : plan.status;
    member.failures = is_refused ? member.failures + 1 : 0;
    const auto retry = std::chrono::milliseconds(std::min(60'000, 5 << std::min(member.failures, 14)));
    const bool has_changed = observed.job.status != before || !plan.actions.empty();
    member.next = now_ + (is_refused    ? retry
                          : has_changed ? std::chrono::milliseconds(50)
                                        : plan.requeue_after.value_or(std::chrono::hours(1)));
  }

  std::list<Member> members_;
  WallTime now_{};
};

TEST(GangStart, GangsThatEachGotAPartOfAQuotaStartOneAfterTheOther) {
  for (const char* pair : {"ab", "cd", "ef", "gh", "ij"}) {
    for (const int apart : {0, 1, 7, 23, 40, 61, 90}) {
      SharedQuota quota({std::string(1, pair[0]), std::string(1, pair[1])}, seconds(apart));
      SharedQuota::Member* first = quota.FirstToStart(std::chrono::minutes(20));
      ASSERT_NE(first, nullptr) << pair << ", " << apart << " s apart";
      quota.Finish(first);
      EXPECT_NE(quota.FirstToStart(std::chrono::minutes(20)), nullptr) << pair << ", " << apart << " s apart";
    }
  }
}

}  // namespace
}  // namespace lockstep::reconcile
