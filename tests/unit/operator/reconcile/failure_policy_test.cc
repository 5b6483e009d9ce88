#include "operator/reconcile/failure_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/plan.h"
#include "runtime/common/api/conditions.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using api::FailureAction;
using api::FailureCause;
using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

// A round of two broke: a rank in the pod of slot 1 hung.
JobWorld WorldWithAHang(FailureAction action) {
  JobWorld world;
  world.Elastic(1, 4).Running(0).Running(1).Round(2, {0, 1}, 5);
  world.observed().rendezvous.changes = {{.round = 1,
                                          .cause = protocol::FailureCause::kHang,
                                          .departures = {{.pod = "job-worker-1",
                                                          .pod_uid = "uid-1",
                                                          .slot = 1,
                                                          .cause = protocol::FailureCause::kHang,
                                                          .reason = "rank process 0 hangs"}}}};
  world.observed().job.spec.failure_policy.rules = {
      {.name = "no-hangs", .action = action, .on_causes = {FailureCause::kHang}}};
  return world;
}

// Carries out the plan except for its pods.
Plan Pass(JobWorld& world) {
  Plan plan = MakePlan(world.observed());
  world.observed().job.status = plan.status;
  for (const PlannedAction& entry : plan.actions) {
    const auto* mark = std::get_if<MarkPod>(&entry.action);
    if (mark == nullptr) continue;
    for (Pod& pod : world.observed().pods) {
      if (pod.name == mark->name) pod.attempt = mark->attempt;
    }
  }
  return plan;
}

void Vanish(JobWorld& world, const std::string& name) {
  std::erase_if(world.observed().pods, [&](const Pod& pod) { return pod.name == name; });
}

TEST(FailurePolicy, FailsTheJobForARankThatDiedInALivingPodWhereARuleSaysSo) {
  JobWorld world = WorldWithAHang(FailureAction::kFailJob);
  const Plan plan = MakePlan(world.observed());
  const api::Condition* failed = api::FindCondition(plan.status.conditions, api::condition::kFailed);
  ASSERT_NE(failed, nullptr);
  EXPECT_EQ(failed->reason, "FailurePolicy");
  EXPECT_EQ(failed->message,
            "the rule no-hangs of failurePolicy.rules says FailJob: job-worker-1: rank process 0 hangs");
  ASSERT_EQ(plan.status.restarts.size(), 1U);
  EXPECT_EQ(plan.status.restarts[0].rule, "no-hangs");
}

TEST(FailurePolicy, FailsTheJobForTheFirstOfSeveralRanks) {
  JobWorld world = WorldWithAHang(FailureAction::kFailJob);
  std::vector<rendezvous::Departure>& departures = world.observed().rendezvous.changes[0].departures;
  departures.push_back(departures[0]);
  departures[1].pod = "job-worker-0";
  departures[1].pod_uid = "uid-0";
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(api::FindCondition(plan.status.conditions, api::condition::kFailed)->message,
              ::testing::HasSubstr("job-worker-1"));
}

TEST(FailurePolicy, LeavesThePodAloneWhereNoRuleSaysMore) {
  JobWorld world = WorldWithAHang(FailureAction::kRestart);
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(plan.status.attempt, 0);
}

TEST(FailurePolicy, ReplacesALivingPodOnTheBudgetAndElsewhere) {
  JobWorld world = WorldWithAHang(FailureAction::kReplacePod);
  const Plan first = Pass(world);
  EXPECT_THAT(ActionsOf(first), ElementsAre("mark job-worker-1 as attempt 1"));
  EXPECT_EQ(first.status.attempt, 1);
  ASSERT_EQ(first.status.avoided_nodes.size(), 1U);
  EXPECT_EQ(first.status.avoided_nodes[0].name, "node-1");
  EXPECT_EQ(first.status.avoided_nodes[0].reason, "job-worker-1: rank process 0 hangs");
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
  Vanish(world, "job-worker-1");
  const Plan last = Pass(world);
  ASSERT_THAT(ActionsOf(last), ElementsAre("create job-worker-1"));
  EXPECT_NE(DumpJson(std::get<CreatePod>(last.actions[0].action).object).find("node-1"), std::string::npos);
  EXPECT_EQ(last.status.attempt, 1) << "charged once";
}

TEST(FailurePolicy, CountsAMarkedPodThatLivesAfterACrashBeforeTheStatusWasWritten) {
  JobWorld world = WorldWithAHang(FailureAction::kReplacePod);
  world.observed().rendezvous.changes.clear();  // the rendezvous keeps it only in memory
  world.observed().pods[1].attempt = 1;
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(plan.status.attempt, 1);
  EXPECT_EQ(plan.status.avoided_nodes.size(), 1U);
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
}

TEST(FailurePolicy, ContinuesWithoutAPodThatARuleGivesUp) {
  JobWorld world = WorldWithAHang(FailureAction::kShrinkJob);
  const Plan first = Pass(world);
  EXPECT_THAT(ActionsOf(first), IsEmpty()) << "the status first";
  EXPECT_THAT(first.status.given_up_slots, ElementsAre(1));
  EXPECT_EQ(first.status.attempt, 0);
  const Plan second = Pass(world);
  EXPECT_THAT(ActionsOf(second), ElementsAre("delete job-worker-1"));
  EXPECT_TRUE(api::IsTrue(second.status.conditions, api::condition::kScheduled)) << "it counts no more";
  Vanish(world, "job-worker-1");
  world.Round(3, {0}, 6);
  const Plan after = Pass(world);
  EXPECT_THAT(ActionsOf(after), IsEmpty()) << "survivors keep their slots, this one stays free";
  EXPECT_TRUE(api::IsTrue(after.status.conditions, api::condition::kScheduled));
  EXPECT_TRUE(api::IsTrue(after.status.conditions, api::condition::kDegraded));
}

TEST(FailurePolicy, TakesASlotUpAgainWhenTheSpecChanges) {
  JobWorld world;
  world.Elastic(1, 4).Running(0);
  world.observed().job.status.observed_generation = 1;
  world.observed().job.status.given_up_slots = {1};
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty());
  world.observed().job.metadata.generation = 2;
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("create job-worker-1"));
  EXPECT_THAT(plan.status.given_up_slots, IsEmpty());
}

// The spec may change before a suspension: a pass during the suspension must not take the old slots for new.
TEST(FailurePolicy, TakesASlotUpAgainAfterASuspensionToo) {
  JobWorld world;
  world.Elastic(1, 4);
  world.observed().job.status.observed_generation = 1;
  world.observed().job.status.given_up_slots = {1};
  world.observed().job.metadata.generation = 2;
  world.observed().job.spec.suspend = true;
  EXPECT_THAT(MakePlan(world.observed()).status.given_up_slots, IsEmpty());
}

TEST(FailurePolicy, DoesNotShrinkBelowTheLeastNumberOfReplicas) {
  JobWorld world = WorldWithAHang(FailureAction::kShrinkJob);
  world.Elastic(2, 4);
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), ElementsAre("mark job-worker-1 as attempt 1")) << "a restart then";
  EXPECT_THAT(plan.status.given_up_slots, IsEmpty());
}

TEST(FailurePolicy, FailsTheJobForTheFirstOfSeveralPods) {
  JobWorld world;
  world.Failed(0, 3, "no such folder").Failed(1, 4, "no object store");
  EXPECT_EQ(api::FindCondition(Pass(world).status.conditions, api::condition::kFailed)->reason, "UserError");
}

TEST(FailurePolicy, RestartIgnoringLimitNeedsNoBudget) {
  JobWorld world;
  world.MaxRestarts(0).Running(0).Failed(1, 42);
  world.observed().job.spec.failure_policy.rules = {
      {.action = FailureAction::kRestartIgnoringLimit,
       .on_exit_codes = api::ExitCodeMatch{api::ExitCodeOperator::kIn, {42}}}};
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1"));
  EXPECT_EQ(plan.status.attempt, 0);
}

TEST(FailurePolicy, HasItsBudgetBackWhenTheWindowHasPassed) {
  JobWorld world;
  world.MaxRestarts(1).Running(0).Failed(1, 1);
  world.observed().job.spec.failure_policy.restart_window_seconds = 60;
  api::TrainingJobStatus& status = world.observed().job.status;
  status.attempt = 4;
  status.restart_window = {world.observed().now - std::chrono::seconds(59), 3};
  EXPECT_TRUE(api::IsFinished(MakePlan(world.observed()).status.conditions)) << "1 of 1 is used";
  status.restart_window->since = world.observed().now - std::chrono::seconds(60);
  const Plan plan = MakePlan(world.observed());
  EXPECT_THAT(ActionsOf(plan), ElementsAre("mark job-worker-1 as attempt 5"));
  EXPECT_EQ(plan.status.restart_window, (api::RestartWindowStatus{world.observed().now, 4}));
}

TEST(FailurePolicy, RecreateReplacesAllPodsAndTheFailedOneLast) {
  JobWorld world;
  world.Replicas(3).Running(0).Failed(1, 1).Running(2);
  world.observed().job.spec.failure_policy.restart_strategy = api::RestartStrategy::kRecreate;
  world.SyncObjects();
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("mark job-worker-1 as attempt 1"));
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-2", "delete job-worker-0"));
  world.observed().pods[0].deleting = true;
  world.observed().pods[2].phase = PodPhase::kFailed;  // a consequence, not charged
  world.observed().pods[2].exit_code = 1;
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-2"));
  Vanish(world, "job-worker-2");
  EXPECT_THAT(ActionsOf(Pass(world)), IsEmpty()) << "no pod is created while one of the old world exists";
  Vanish(world, "job-worker-0");
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
  Vanish(world, "job-worker-1");
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan),
              ElementsAre("create job-worker-0", "create job-worker-1", "create job-worker-2"));
  EXPECT_EQ(plan.status.attempt, 1);
}

// ---- unhealthy nodes

// Nodes 0 and 1 are good except for one condition of the latter, which the job names.
JobWorld WorldWithABadNode(api::HealthAction action = api::HealthAction::kReplacePod) {
  JobWorld world;
  world.MaxRestarts(0).Running(0).Running(1);
  world.observed().nodes = {{"node-0", {.conditions = {{"Ready", "True"}}}},
                            {"node-1", {.conditions = {{"Ready", "True"}, {"GpuBad", "True"}}}}};
  world.observed().job.spec.health_policy.node_fault = {
      .conditions = {{"GpuBad", api::ConditionStatus::kTrue}}, .action = action};
  return world;
}

TEST(NodeFaults, ReplaceALivingPodOnceTheStatusSaysToAvoidItsNode) {
  JobWorld world = WorldWithABadNode();
  const Plan first = Pass(world);
  EXPECT_THAT(ActionsOf(first), IsEmpty());
  ASSERT_EQ(first.status.avoided_nodes.size(), 1U);
  EXPECT_EQ(first.status.avoided_nodes[0].name, "node-1");
  EXPECT_EQ(first.status.avoided_nodes[0].reason, "condition GpuBad of the node is True");
  const Plan second = Pass(world);
  EXPECT_THAT(ActionsOf(second), ElementsAre("delete job-worker-1"));
  EXPECT_THAT(second.lost, IsEmpty()) << "its worker hears of it in good order, and hands over";
  EXPECT_EQ(second.status.attempt, 0);
}

// Kubernetes stores whole seconds: a pod of that second may be older than the suspicion.
TEST(NodeFaults, ReplaceAPodThatWasCreatedInTheSecondOfTheSuspicion) {
  JobWorld world = WorldWithABadNode();
  Pass(world);
  world.observed().pods[1].created = world.observed().now;
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
}

TEST(NodeFaults, LeaveAPodThatFoundNoOtherPlace) {
  JobWorld world = WorldWithABadNode();
  Pass(world);
  world.observed().now += std::chrono::seconds(30);
  world.observed().pods[1].created = world.observed().now;
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(Pass(world).status, plan.status) << "and nothing is written";
}

TEST(NodeFaults, RestartPodsOnceWhereverThereIsRoom) {
  JobWorld world = WorldWithABadNode(api::HealthAction::kRestart);
  EXPECT_THAT(ActionsOf(Pass(world)), IsEmpty()) << "the status first";
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
  Vanish(world, "job-worker-1");
  const Plan plan = Pass(world);
  ASSERT_THAT(ActionsOf(plan), ElementsAre("create job-worker-1"));
  EXPECT_EQ(
      FindJson(std::get<CreatePod>(plan.actions[0].action).object, {"spec", "affinity", "nodeAffinity"}),
      nullptr);
  world.observed().now += std::chrono::seconds(30);
  world.Running(1);
  world.observed().pods.back().created = world.observed().now;
  EXPECT_THAT(ActionsOf(Pass(world)), IsEmpty()) << "it is back on the same node";
}

TEST(NodeFaults, AreOnlyReportedWhenTheJobAsksForAReport) {
  JobWorld world = WorldWithABadNode(api::HealthAction::kReport);
  EXPECT_FALSE(Pass(world).events.empty());
  const Plan second = Pass(world);
  EXPECT_THAT(ActionsOf(second), IsEmpty());
  EXPECT_TRUE(second.events.empty()) << "once";
}

TEST(NodeFaults, SettleWhenMoreNodesAreBadThanTheStatusHolds) {
  constexpr int32_t kReplicas = 70;
  JobWorld world = WorldWithABadNode();
  world.observed().pods.clear();
  world.Replicas(kReplicas);
  for (int32_t slot = 0; slot < kReplicas; ++slot) {
    world.Running(slot);
    (*world.observed().nodes)["node-" + std::to_string(slot)] = {.conditions = {{"GpuBad", "True"}}};
  }
  EXPECT_EQ(Pass(world).status.avoided_nodes.size(), kMostAvoidedNodes);
  EXPECT_EQ(Pass(world).actions.size(), kMostAvoidedNodes) << "those in the status";
  world.observed().now += std::chrono::seconds(30);
  for (Pod& pod : world.observed().pods) pod.created = world.observed().now;
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), IsEmpty());
  EXPECT_EQ(Pass(world).status, plan.status) << "and nothing is written";
}

TEST(NodeFaults, DoNotHideAnErrorOfTheUser) {
  JobWorld world = WorldWithABadNode();
  world.observed().pods[1].phase = PodPhase::kFailed;
  world.observed().pods[1].exit_code = 3;
  EXPECT_TRUE(api::IsFinished(Pass(world).status.conditions));
}

TEST(NodeFaults, CostNoRestartWhereThePodFailedToo) {
  JobWorld world = WorldWithABadNode();
  world.observed().pods[1].phase = PodPhase::kFailed;
  world.observed().pods[1].exit_code = 1;
  EXPECT_FALSE(api::IsFinished(Pass(world).status.conditions)) << "it has no restarts";
  const Plan second = Pass(world);
  EXPECT_THAT(ActionsOf(second), ElementsAre("delete job-worker-1"));
  EXPECT_EQ(second.status.attempt, 0);
}

TEST(NodeFaults, ReplaceAPodWithAnUnhealthyDeviceAsIfItsNodeWereBad) {
  JobWorld world;
  world.MaxRestarts(0).Running(0).Running(1);
  world.observed().nodes.reset();  // the operator may not read nodes
  world.observed().pods[1].unhealthy_devices = {"gpu-3 of nvidia.com/gpu"};
  const Plan first = Pass(world);
  EXPECT_THAT(ActionsOf(first), IsEmpty());
  ASSERT_EQ(first.status.avoided_nodes.size(), 1U);
  EXPECT_EQ(first.status.avoided_nodes[0].name, "node-1");
  EXPECT_EQ(first.status.avoided_nodes[0].reason, "unhealthy devices: gpu-3 of nvidia.com/gpu");
  const Plan second = Pass(world);
  EXPECT_THAT(ActionsOf(second), ElementsAre("delete job-worker-1"));
  EXPECT_EQ(second.status.attempt, 0);
}

TEST(NodeFaults, ReportTheUnhealthyDevicesOfANodeOnce) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().job.spec.health_policy.node_fault = {.action = api::HealthAction::kReport};
  for (Pod& pod : world.observed().pods) pod.node = "node-0";
  world.observed().pods[0].unhealthy_devices = {"gpu-0 of nvidia.com/gpu"};
  world.observed().pods[1].unhealthy_devices = {"gpu-1 of nvidia.com/gpu"};
  const Plan first = Pass(world);
  EXPECT_EQ(first.status.avoided_nodes[0].reason,
            "unhealthy devices: gpu-0 of nvidia.com/gpu, gpu-1 of nvidia.com/gpu");
  const Plan second = Pass(world);
  EXPECT_TRUE(second.events.empty());
  EXPECT_EQ(second.status, first.status) << "and nothing is written";
}

TEST(NodeFaults, ReplaceAPodOfALostNodeAtOnceAndNotifyTheRendezvous) {
  JobWorld world;
  world.MaxRestarts(0).Running(0).Running(1);
  world.observed().nodes = {{"node-0", {.conditions = {{"Ready", "True"}}}},
                            {"node-1", {.conditions = {{"Ready", "Unknown"}}}}};
  const Plan plan = Pass(world);
  EXPECT_THAT(ActionsOf(plan), ElementsAre("delete job-worker-1"));
  ASSERT_EQ(plan.lost.size(), 1U);
  EXPECT_EQ(plan.lost[0].pod_uid, "uid-1");
  EXPECT_EQ(plan.lost[0].node, "node-1");
  EXPECT_EQ(plan.status.avoided_nodes.size(), 1U);
  EXPECT_EQ(plan.status.attempt, 0);
  world.observed().pods[1].deleting = true;
  const Plan next = Pass(world);
  EXPECT_THAT(ActionsOf(next), IsEmpty());
  EXPECT_THAT(next.lost, IsEmpty());
}

// As after an outage of the API server, when the kubelets reconnect one after the other.
TEST(NodeFaults, KeepAPodOfALostNodeThatStillSendsHeartbeatsOrMayYet) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().nodes = {{"node-0", {.conditions = {{"Ready", "True"}}}},
                            {"node-1", {.conditions = {{"Ready", "Unknown"}}}}};
  world.observed().rendezvous.responsive_pods = {"uid-0", "uid-1"};
  const auto expect_left_alone = [&] {
    const Plan plan = Pass(world);
    EXPECT_THAT(ActionsOf(plan), IsEmpty());
    EXPECT_THAT(plan.lost, IsEmpty());
    EXPECT_THAT(plan.status.avoided_nodes, IsEmpty());
    EXPECT_LE(plan.requeue_after, std::chrono::seconds(10));
  };
  expect_left_alone();
  world.observed().rendezvous = {.responsive_pods = {"uid-0"}, .listening = std::chrono::seconds(9)};
  expect_left_alone();
  world.observed().rendezvous.listening = std::chrono::seconds(10);
  EXPECT_THAT(ActionsOf(Pass(world)), ElementsAre("delete job-worker-1"));
}

}  // namespace
}  // namespace lockstep::reconcile
