#include "operator/reconcile/rollout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

// Three pods train; only the first was created from the newest template.
JobWorld WorldWithOldPods() {
  JobWorld world;
  world.Replicas(3).Running(0).Running(1).Running(2).Round(1, {0, 1, 2}, 5);
  for (Pod& pod : world.observed().pods) pod.template_hash = "old";
  world.observed().pods[0].template_hash = TemplateHash(world.observed().job.spec);
  world.observed().job.status = MakePlan(world.observed()).status;
  return world;
}

api::Condition UpdatedOf(const Plan& plan) {
  const api::Condition* found = api::FindCondition(plan.status.conditions, api::condition::kUpdated);
  return found == nullptr ? api::Condition{} : *found;
}

TEST(Rollout, ReplacesOnePodAtATime) {
  JobWorld world = WorldWithOldPods();
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-2"));
  EXPECT_EQ(UpdatedOf(plan).status, api::ConditionStatus::kFalse);
  EXPECT_EQ(UpdatedOf(plan).reason, "TemplateChanged");
  EXPECT_THAT(UpdatedOf(plan).message,
              ::testing::StartsWith("2 of 3 pods are of an older spec.worker.template"));
}

TEST(Rollout, WaitsUntilAllOthersTrain) {
  struct Case {
    const char* name;
    std::function<void(Observed&)> change;
  };
  const Case cases[] = {
      {"one is leaving", [](Observed& o) { o.pods[2].deleting = true; }},
      {"one is starting", [](Observed& o) { o.pods[0].phase = PodPhase::kPending; }},
      {"one is not in the round yet", [](Observed& o) { o.rendezvous.members.pop_back(); }},
      {"the operator was restarted", [](Observed& o) { o.rendezvous = {}; }},
  };
  for (const Case& test : cases) {
    JobWorld world = WorldWithOldPods();
    world.Set(test.change);
    EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty()) << test.name;
  }
}

TEST(Rollout, ReplacesAPodThatCannotStartFirst) {
  JobWorld world = WorldWithOldPods();
  world.observed().pods[1].phase = PodPhase::kPending;
  world.observed().rendezvous.members.pop_back();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete job-worker-1"));
}

TEST(Rollout, ReplacesAllPodsWhenNoneHoldsState) {
  JobWorld world = WorldWithOldPods();
  world.observed().job.status.conditions.clear();
  world.observed().rendezvous = {};
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())),
              ElementsAre("delete job-worker-1", "delete job-worker-2"));
}

TEST(Rollout, SaysWhenItIsDone) {
  JobWorld world = WorldWithOldPods();
  for (Pod& pod : world.observed().pods) pod.template_hash = TemplateHash(world.observed().job.spec);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(UpdatedOf(plan).status, api::ConditionStatus::kTrue);
}

TEST(Rollout, LeavesPodsWithoutAHashAlone) {
  JobWorld world;
  world.Running(0).Running(1).Round(1, {0, 1}, 5);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(UpdatedOf(plan).reason, "");
}

TEST(TemplateHash, ChangesWithTheTemplateAlone) {
  JobWorld world;
  api::TrainingJobSpec spec = world.observed().job.spec;
  const std::string before = TemplateHash(spec);
  spec.worker.replicas = 9;
  EXPECT_EQ(TemplateHash(spec), before);
  spec.worker.pod_template["spec"]["containers"][0]["image"] = "newer";
  EXPECT_NE(TemplateHash(spec), before);
}

}  // namespace
}  // namespace lockstep::reconcile
