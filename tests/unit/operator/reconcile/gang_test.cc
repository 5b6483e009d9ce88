#include "operator/reconcile/gang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using api::GangProvider;
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

TEST(Gang, RecreatesAGroupOfKubernetesWhenItsSizeChangesBeforeAnyPodIsScheduled) {
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

// The group counts all of its pods: it would hold back a single later pod.
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

}  // namespace
}  // namespace lockstep::reconcile
