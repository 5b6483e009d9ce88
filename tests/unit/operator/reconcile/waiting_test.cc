#include "operator/reconcile/waiting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using testing::ActionsOf;
using testing::ConditionOf;
using ::testing::Contains;
using testing::EventsOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::JobWorld;
namespace condition = api::condition;

TEST(Waiting, NamesTheMissingSecretAndTheFieldThatAsksForIt) {
  JobWorld world;
  world.observed().job.spec.checkpoint =
      api::CheckpointSpec{.uri = "s3://b", .secret_ref = api::SecretReference{"s3"}};
  world.SyncObjects().Running(0);
  Pod& pod = world.Add(1, PodPhase::kPending);
  pod.node = "node-1";
  pod.waiting_reason = "CreateContainerConfigError";
  pod.waiting_message = "secret \"s3\" not found";
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  const api::Condition stalled = ConditionOf(plan, condition::kStalled);
  EXPECT_EQ(stalled.status, api::ConditionStatus::kTrue);
  EXPECT_EQ(stalled.reason, "SecretMissing");
  EXPECT_THAT(stalled.message,
              HasSubstr("spec.checkpoint.secretRef: create the Secret \"s3\" in namespace \"team\""));
  EXPECT_EQ(ConditionOf(plan, condition::kProgressing).reason, "SecretMissing");
  EXPECT_EQ(plan.status.state, "Stalled");
  EXPECT_THAT(EventsOf(plan), Contains("SecretMissing"));

  world.observed().job.status = plan.status;
  world.observed().pods[1].waiting_reason.clear();
  world.observed().pods[1].phase = PodPhase::kRunning;
  const Plan mended = MakePlan(world.observed());
  EXPECT_EQ(ConditionOf(mended, condition::kStalled).status, api::ConditionStatus::kFalse);
  EXPECT_EQ(mended.status.state, "Starting");
}

TEST(Waiting, NamesTheMissingSecretOfTheData) {
  JobWorld world;
  world.observed().job.spec.checkpoint =
      api::CheckpointSpec{.uri = "s3://b", .secret_ref = api::SecretReference{"s3"}};
  world.observed().job.spec.training.emplace().data.secret_ref = api::SecretReference{"data"};
  world.SyncObjects().Running(0);
  Pod& pod = world.Add(1, PodPhase::kPending);
  pod.node = "node-1";
  pod.waiting_reason = "CreateContainerConfigError";
  pod.waiting_message = "secret \"data\" not found";
  EXPECT_THAT(ConditionOf(MakePlan(world.observed()), condition::kStalled).message,
              HasSubstr("spec.training.data.secretRef: create the Secret \"data\" in namespace \"team\""));
}

TEST(Waiting, ReportsAnImageThatCannotBePulled) {
  JobWorld world;
  world.Running(0);
  Pod& pod = world.Add(1, PodPhase::kPending);
  pod.node = "node-1";
  pod.waiting_reason = "ImagePullBackOff";
  pod.waiting_message = "Back-off pulling image \"worker\"";
  const api::Condition stalled = ConditionOf(MakePlan(world.observed()), condition::kStalled);
  EXPECT_EQ(stalled.reason, "ImagePullFailed");
  EXPECT_THAT(stalled.message, HasSubstr("Back-off pulling image"));
}

TEST(Waiting, ReportsWhyPodsHaveNoNode) {
  JobWorld world;
  world.Running(0);
  world.Add(1, PodPhase::kPending).unschedulable = "0/3 nodes are available: insufficient cpu";
  const Plan plan = MakePlan(world.observed());
  const api::Condition scheduled = ConditionOf(plan, condition::kScheduled);
  EXPECT_EQ(scheduled.status, api::ConditionStatus::kFalse);
  EXPECT_EQ(scheduled.reason, "Unschedulable");
  EXPECT_THAT(scheduled.message, HasSubstr("insufficient cpu"));
  EXPECT_EQ(plan.status.state, "Pending");
}

TEST(Waiting, TheRendezvousSaysWhichPodsHaveNotStarted) {
  const auto waits_for = [](JobWorld world) { return MakePlan(world.observed()).rendezvous->waits_for; };
  const struct {
    const char* name;
    JobWorld world;
    const char* expected;
  } cases[] = {
      {"all run", JobWorld().Running(0).Running(1), ""},
      {"no node", JobWorld().Running(0).Pending(1), "1 of 2 pods have not started"},
      {"refused by the quota", JobWorld().Running(0), "1 of 2 pods have not started"},
      {"to be replaced", JobWorld().Running(0).Failed(1, 1), "1 of 2 pods have not started"},
      {"leaving", JobWorld().Running(0).Running(1).Set([](Observed& o) { o.pods[1].deleting = true; }),
       "1 of 2 pods have not started"},
      {"a standby is no matter",
       JobWorld().Running(0).Running(1).Pending(2).Set([](Observed& o) { o.job.spec.standby_replicas = 1; }),
       ""},
      {"a standby takes a place",
       JobWorld().Pending(0).Running(1).Running(2).Set([](Observed& o) { o.job.spec.standby_replicas = 1; }),
       ""},
      {"given up", JobWorld().Elastic(1, 2).Running(0).Set([](Observed& o) {
         o.job.status.observed_generation = 1;
         o.job.status.given_up_slots = {1};
       }),
       ""},
      {"surplus", JobWorld().Running(0).Running(5), "1 of 2 pods have not started"},
      {"one has reached the end", JobWorld().Running(0).Succeeded(1), ""},
  };
  for (const auto& test : cases) EXPECT_EQ(waits_for(test.world), test.expected) << test.name;
}

TEST(Waiting, SaysThatPodsStartWhileAnyHasNotStarted) {
  JobWorld world;
  world.Running(0).Pending(1);
  EXPECT_EQ(ConditionOf(MakePlan(world.observed()), condition::kProgressing).reason, "PodsStarting");
  world.observed().pods[1].phase = PodPhase::kRunning;
  EXPECT_EQ(ConditionOf(MakePlan(world.observed()), condition::kProgressing).reason, "Rendezvous");
}

}  // namespace
}  // namespace lockstep::reconcile
