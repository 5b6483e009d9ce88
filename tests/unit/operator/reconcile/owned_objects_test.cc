#include "operator/reconcile/owned_objects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/reconcile/desired_pod.h"
#include "operator/reconcile/plan.h"
#include "tests/support/job_world.h"
#include "tests/support/plan_text.h"

namespace lockstep::reconcile {
namespace {

using testing::ActionsOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::JobWorld;

Json Of(const api::TrainingJob& job, const kube::Resource& resource) {
  for (const OwnedObject& owned : DesiredOwnedObjects(job, {})) {
    if (owned.resource == resource) return owned.object;
  }
  return {};
}

TEST(OwnedObjects, GivePodsAnAccountOfTheirOwnWithoutAToken) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  EXPECT_TRUE(Of(job, kServiceAccounts).is_null()) << "not asked for";
  EXPECT_FALSE(DesiredPod(job, 0)["spec"].contains("serviceAccountName"));
  job.spec.worker.create_service_account = true;
  const Json account = Of(job, kServiceAccounts);
  EXPECT_EQ(account["metadata"]["name"], "job-worker");
  EXPECT_EQ(account["automountServiceAccountToken"], false);
  EXPECT_EQ(DesiredPod(job, 0)["spec"]["serviceAccountName"], "job-worker");
  job.spec.worker.pod_template["spec"]["serviceAccountName"] = "mine";
  EXPECT_TRUE(Of(job, kServiceAccounts).is_null());
  EXPECT_EQ(DesiredPod(job, 0)["spec"]["serviceAccountName"], "mine");
}

TEST(OwnedObjects, IsolateLetsInPeersAndScrapers) {
  JobWorld world;
  api::TrainingJob& job = world.observed().job;
  EXPECT_TRUE(Of(job, kNetworkPolicies).is_null()) << "not asked for";
  job.spec.network = api::NetworkSpec{};
  const Json spec = Of(job, kNetworkPolicies)["spec"];
  const Json workers = *ParseJson(
      R"({"matchLabels": {"app.kubernetes.io/name": "lockstep-worker", "lockstep.dev/job": "job"}})");
  EXPECT_EQ(spec["podSelector"], workers);
  EXPECT_EQ(spec["policyTypes"], *ParseJson(R"(["Ingress"])"));
  EXPECT_EQ(spec["ingress"][0], (Json{{"from", Json::array({{{"podSelector", workers}}})}}));
  EXPECT_EQ(spec["ingress"][1], *ParseJson(R"({"ports": [{"port": 9400, "protocol": "TCP"}]})"));
  job.spec.network->network_policy = api::NetworkPolicy::kNone;
  EXPECT_TRUE(Of(job, kNetworkPolicies).is_null());
}

TEST(OwnedObjects, LetADrainTakeWhatARoundCanSpareAndOneAtLeast) {
  const struct {
    int32_t min;
    int32_t replicas;
    int32_t unavailable;
  } cases[] = {{1, 4, 3}, {3, 4, 1}, {4, 4, 1}};
  for (const auto& test : cases) {
    JobWorld world;
    world.Elastic(test.min, 4).Replicas(test.replicas);
    EXPECT_TRUE(Of(world.observed().job, kDisruptionBudgets).is_null()) << "not asked for";
    world.observed().job.spec.scheduling_policy.pod_disruption_budget = true;
    EXPECT_EQ(Of(world.observed().job, kDisruptionBudgets)["spec"]["maxUnavailable"], test.unavailable)
        << test.min;
  }
}

TEST(OwnedObjects, AutoscaleWithinTheBoundsOfTheJob) {
  JobWorld world;
  world.Elastic(1, 4);
  api::TrainingJob& job = world.observed().job;
  EXPECT_TRUE(Of(job, kAutoscalers).is_null());
  job.spec.elastic_policy->metrics = {*ParseJson(R"({"type": "Resource", "resource": {"name": "cpu",
    "target": {"type": "AverageValue", "averageValue": "0.5"}}})")};
  const Json spec = Of(job, kAutoscalers)["spec"];
  EXPECT_EQ(
      spec["scaleTargetRef"],
      *ParseJson(
          R"({"apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob", "name": "job"})"));
  EXPECT_EQ(spec["minReplicas"], 1);
  EXPECT_EQ(spec["maxReplicas"], 4);
  EXPECT_EQ(spec["metrics"][0]["type"], "Resource");
}

TEST(OwnedObjects, TakeTheQuantitiesOfTheApiServerForOurs) {
  JobWorld world;
  world.Elastic(1, 4);
  api::TrainingJob& job = world.observed().job;
  job.spec.elastic_policy->metrics = {{{"averageValue", "0.5"}}};
  OwnedObject desired{kAutoscalers, Of(job, kAutoscalers)};
  Json actual = desired.object;
  actual["spec"]["metrics"][0]["averageValue"] = "500m";
  EXPECT_TRUE(IsAsDesired(desired, actual));
  job.spec.elastic_policy->metrics = {{{"averageValue", "0.6"}}};
  EXPECT_FALSE(IsAsDesired({kAutoscalers, Of(job, kAutoscalers)}, actual));
}

TEST(PlanObjects, FollowTheSpecAndRestWhereTheyAreRight) {
  JobWorld world;
  world.Running(0).Running(1);
  world.observed().job.spec.network = api::NetworkSpec{};
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("apply NetworkPolicy"));
  world.SyncObjects();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), IsEmpty());
  world.observed().job.spec.observability.metrics_port = 9500;
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ::testing::Contains("apply NetworkPolicy"));
  world.SyncObjects().observed().job.spec.network.reset();
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete NetworkPolicy"));
}

TEST(PlanObjects, NothingScalesAFinishedJob) {
  JobWorld world;
  world.Elastic(1, 4).Succeeded(0).Succeeded(1);
  world.observed().job.spec.elastic_policy->metrics = {{{"type", "Pods"}}};
  world.SyncObjects();
  world.observed().job.status = MakePlan(world.observed()).status;  // the status is written first
  EXPECT_THAT(ActionsOf(MakePlan(world.observed())), ElementsAre("delete HorizontalPodAutoscaler"));
}

}  // namespace
}  // namespace lockstep::reconcile
