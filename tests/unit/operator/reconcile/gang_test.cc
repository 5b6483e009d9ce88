#include "operator/reconcile/gang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using api::GangProvider;
using std::chrono::seconds;
using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

const std::string kCoscheduling = KeyOfKind(kCoschedulingGroups);
const std::string kVolcano = KeyOfKind(kVolcanoGroups);
const std::string kCore = KeyOfKind(kCoreGroups.back());

TEST(Gang, AutoTakesWhatTheClusterHas) {
  const struct {
    const char* name;
    GangProvider asked;
    const char* scheduler;
    std::set<std::string> served;
    GangProvider taken;
    bool is_possible;
  } cases[] = {
      {"nothing there", GangProvider::kAuto, "", {}, GangProvider::kNone, true},
      {"plugins", GangProvider::kAuto, "", {kCoscheduling, kVolcano}, GangProvider::kCoscheduling, true},
      {"Kubernetes", GangProvider::kAuto, "", {kCore, kVolcano}, GangProvider::kWorkload, true},
      {"plugins before Kubernetes",
       GangProvider::kAuto,
       "",
       {kCore, kCoscheduling},
       GangProvider::kCoscheduling,
       true},
      {"Kubernetes is too old", GangProvider::kWorkload, "", {kCoscheduling}, GangProvider::kWorkload, false},
      {"Volcano without being asked", GangProvider::kAuto, "", {kVolcano}, GangProvider::kNone, true},
      {"Volcano by the template",
       GangProvider::kAuto,
       "volcano",
       {kCoscheduling, kVolcano},
       GangProvider::kVolcano,
       true},
      {"None all the same", GangProvider::kNone, "", {kCoscheduling}, GangProvider::kNone, true},
      {"named, but not there", GangProvider::kVolcano, "", {kCoscheduling}, GangProvider::kVolcano, false},
  };
  for (const auto& test : cases) {
    JobWorld world;
    api::TrainingJob& job = world.observed().job;
    job.spec.scheduling_policy.gang = api::GangPolicy{.provider = test.asked};
    job.spec.worker.pod_template["spec"]["schedulerName"] = test.scheduler;
    EXPECT_EQ(GangBackendOf(job, test.served), test.taken) << test.name;
    EXPECT_EQ(WhyNoGang(job, test.served).empty(), test.is_possible) << test.name;
  }
  EXPECT_FALSE(GangBackendOf(JobWorld().observed().job, {kCoscheduling})) << "not asked for";
}

TEST(Gang, MakesAGroupOfTheSchedulerPluginsBeforeItsPods) {
  JobWorld world;
  world.observed().served = {kCoscheduling};
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.schedule_timeout_seconds = 60};
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(ActionsOf(plan), ElementsAre("apply PodGroup", "create job-worker-0", "create job-worker-1"));
  EXPECT_EQ(std::get<ApplyObject>(plan.actions[0].action).object["spec"],
            *ParseJson(R"({"minMember": 2, "scheduleTimeoutSeconds": 60})"));
  const Json& pod = std::get<CreatePod>(plan.actions[1].action).object;
  EXPECT_EQ(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "job");
}

TEST(Gang, MakesAGroupOfVolcano) {
  JobWorld world;
  world.Elastic(1, 4);
  api::TrainingJob& job = world.observed().job;
  job.spec.scheduling_policy = {.gang = api::GangPolicy{.provider = GangProvider::kVolcano},
                                .priority_class_name = "high"};
  const auto group = DesiredPodGroup(job, {kVolcano});
  ASSERT_TRUE(group.has_value());
  EXPECT_EQ(group->object["spec"], *ParseJson(R"({"minMember": 1, "priorityClassName": "high"})"));
  Json pod = Json::object();
  JoinGang(pod, job, {kVolcano});
  EXPECT_EQ(pod, *ParseJson(R"({"metadata": {"annotations": {"scheduling.k8s.io/group-name": "job"}},
                                "spec": {"schedulerName": "volcano"}})"));
}

// A world with Kubernetes' own group for its two pods.
JobWorld WithCoreGroup() {
  JobWorld world;
  world.observed().served = {kCore};
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{};
  world.observed().owned[kCore] = DesiredPodGroup(world.observed().job, {kCore})->object;
  return world;
}

TEST(Gang, MakesAGroupOfKubernetesInTheVersionThatIsServed) {
  JobWorld world;
  world.observed().served = {kCore};
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{};
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(ActionsOf(plan), ElementsAre("apply PodGroup", "create job-worker-0", "create job-worker-1"));
  const auto& group = std::get<ApplyObject>(plan.actions[0].action);
  EXPECT_EQ(group.resource, kCoreGroups.back());
  EXPECT_EQ(group.object["spec"], *ParseJson(R"({"schedulingPolicy": {"gang": {"minCount": 2}}})"));
  const Json& pod = std::get<CreatePod>(plan.actions[1].action).object;
  EXPECT_EQ(pod["spec"]["schedulingGroup"], *ParseJson(R"({"podGroupName": "job"})"));
}

TEST(Gang, MakesAGroupOfKubernetesAnewWhereItsSizeChangesBeforeAnyPodHasItsPlace) {
  JobWorld world = WithCoreGroup();
  world.Pending(0).Pending(1);
  world.observed().job.spec.scheduling_policy.gang->min_count = 1;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-1", "delete job-worker-0"));
  world.observed().pods.clear();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete PodGroup"));
  world.observed().owned.erase(kCore);
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("apply PodGroup", "create job-worker-0", "create job-worker-1"));
}

TEST(Gang, ChangesAGroupOfKubernetesWhereItsVersionLetsIt) {
  for (const kube::Resource& version : {kCoreGroups[0], kCoreGroups[1]}) {
    const std::string key = KeyOfKind(version);
    JobWorld world;
    world.observed().served = {key};
    world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{};
    world.observed().owned[key] = DesiredPodGroup(world.observed().job, {key})->object;
    world.Pending(0).Pending(1);
    world.observed().job.spec.scheduling_policy.gang->min_count = 1;
    EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("apply PodGroup")) << key;
  }
}

// The group counts all of its pods: it would hold back one that comes alone.
TEST(Gang, PodsThatComeLaterAreOfNoGroupOfKubernetes) {
  JobWorld world = WithCoreGroup();
  world.Running(0);
  world.observed().job.spec.scheduling_policy.gang->min_count = 1;
  const Plan plan = MakePlan(world.observed());
  ASSERT_THAT(ActionsOf(plan), ElementsAre("create job-worker-1"));
  EXPECT_FALSE(std::get<CreatePod>(plan.actions[0].action).object["spec"].contains("schedulingGroup"));
}

TEST(Gang, IsStalledWithoutPodsWhereItsBackEndIsMissing) {
  JobWorld world;
  world.observed().job.spec.scheduling_policy.gang = api::GangPolicy{.provider = GangProvider::kCoscheduling};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  const api::Condition* stalled = api::FindCondition(plan.status.conditions, api::condition::kStalled);
  ASSERT_NE(stalled, nullptr);
  EXPECT_EQ(stalled->reason, "GangUnavailable");
}

// ---- the time-out that works with any scheduler

// Three pods of four have a node; the fourth has waited for so long.
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

}  // namespace
}  // namespace lockstep::reconcile
