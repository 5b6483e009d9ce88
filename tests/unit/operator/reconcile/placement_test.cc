#include "operator/reconcile/placement.h"

#include <gtest/gtest.h>

namespace lockstep::reconcile {
namespace {

Json Placed(api::TopologyMode mode) {
  api::TrainingJob job;
  job.metadata.name = "job";
  job.spec.scheduling_policy.topology = api::TopologyPolicy{"rack", mode};
  Json spec = *ParseJson(
      R"({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]}}})");
  KeepTogether(spec, job);
  return spec["affinity"]["podAffinity"];
}

const char* const kTerm = R"({"topologyKey": "rack", "labelSelector": {"matchLabels":
  {"lockstep.dev/job": "job", "app.kubernetes.io/name": "lockstep-worker"}}})";

TEST(Placement, PrefersTopologyNearOtherPodsInAdditionToTheTemplatesAffinity) {
  const Json affinity = Placed(api::TopologyMode::kPreferred);
  const Json& preferences = affinity["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(preferences.size(), 2U);
  EXPECT_EQ(preferences[1]["weight"], 100);
  EXPECT_EQ(preferences[1]["podAffinityTerm"], *ParseJson(kTerm));
  EXPECT_FALSE(affinity.contains("requiredDuringSchedulingIgnoredDuringExecution"));
}

TEST(Placement, OrDemandsThem) {
  const Json affinity = Placed(api::TopologyMode::kRequired);
  EXPECT_EQ(affinity["requiredDuringSchedulingIgnoredDuringExecution"][0], *ParseJson(kTerm));
  EXPECT_EQ(affinity["preferredDuringSchedulingIgnoredDuringExecution"].size(), 1U);
}

TEST(Placement, SaysNothingWhereTheJobDoesNot) {
  Json spec = Json::object();
  KeepTogether(spec, {});
  EXPECT_TRUE(spec.empty());
}

}  // namespace
}  // namespace lockstep::reconcile
