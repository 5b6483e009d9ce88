#include "operator/reconcile/avoided_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::reconcile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr WallTime kNow{std::chrono::hours(500'000)};

TEST(AvoidedNodes, AreRememberedForAnHourSinceTheLastReason) {
  api::TrainingJobStatus status;
  AvoidNode(status, {"a", "once"}, kNow);
  AvoidNode(status, {"b", "once"}, kNow + std::chrono::minutes(10));
  AvoidNode(status, {"a", "again"}, kNow + std::chrono::minutes(30));
  EXPECT_THAT(AvoidedNodes(status, kNow + std::chrono::minutes(31)), ElementsAre("a", "b"));
  EXPECT_EQ(status.avoided_nodes[0].reason, "again");
  EXPECT_THAT(AvoidedNodes(status, kNow + std::chrono::minutes(70)), ElementsAre("a"));
  EXPECT_THAT(AvoidedNodes(status, kNow + std::chrono::minutes(90)), IsEmpty());
  AvoidNode(status, {"c", "once"}, kNow + std::chrono::minutes(95));
  EXPECT_EQ(status.avoided_nodes.size(), 1U) << "what is old goes with the next write";
}

TEST(AvoidedNodes, AreNotThoseThatAreOnlyNoted) {
  api::TrainingJobStatus status;
  AvoidNode(status, {"a", "ill", true}, kNow);
  EXPECT_THAT(AvoidedNodes(status, kNow), IsEmpty());
  EXPECT_NE(FindSuspicion(status, {"a", "ill"}), nullptr);
  AvoidNode(status, {"a", "failed"}, kNow);
  EXPECT_THAT(AvoidedNodes(status, kNow), ElementsAre("a"));
  AvoidNode(status, {"a", "ill", true}, kNow);
  EXPECT_THAT(AvoidedNodes(status, kNow), ElementsAre("a")) << "a weaker reason does not clear it";
}

TEST(AvoidedNodes, AreLimitedToTheNewest) {
  api::TrainingJobStatus status;
  for (int i = 0; i < 66; ++i) AvoidNode(status, {"node-" + std::to_string(i), "failed"}, kNow);
  EXPECT_EQ(status.avoided_nodes.size(), kMostAvoidedNodes);
  EXPECT_EQ(status.avoided_nodes.front().name, "node-65");
  EXPECT_EQ(status.avoided_nodes.back().name, "node-2");
}

TEST(AvoidedNodes, AreAPreferenceInAdditionToThoseOfTheTemplate) {
  Json spec =
      *ParseJson(R"({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}]}}})");
  PreferOtherNodes(spec, {"a", "b"});
  const Json& preferences =
      spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  ASSERT_EQ(preferences.size(), 2U);
  EXPECT_EQ(preferences[1], *ParseJson(R"({"weight": 100, "preference": {"matchFields": [
    {"key": "metadata.name", "operator": "NotIn", "values": ["a"]},
    {"key": "metadata.name", "operator": "NotIn", "values": ["b"]}]}})"));
}

TEST(AvoidedNodes, LeaveTheTemplateAsItIsWhereThereIsNone) {
  Json spec = Json::object();
  PreferOtherNodes(spec, {});
  EXPECT_TRUE(spec.empty());
}

}  // namespace
}  // namespace lockstep::reconcile
