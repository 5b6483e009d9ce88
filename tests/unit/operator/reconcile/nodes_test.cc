#include "operator/reconcile/nodes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::reconcile {
namespace {

Node NodeOf(const std::string& text) { return NodeFromJson(NodeFields().Apply(*ParseJson(text))); }

TEST(Nodes, DepartByTheTaintsOfThoseWhoTakeThem) {
  const auto departure = [](const std::string& key) {
    return DepartureOf(
        NodeOf(R"({"spec": {"taints": [{"key": ")" + key + R"(", "effect": "NoSchedule"}]}})"));
  };
  for (const char* key :
       {"aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination",
        "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler"})
    EXPECT_EQ(departure(key), std::string("the node has the taint ") + key);
  EXPECT_EQ(departure("node.kubernetes.io/unschedulable"), std::nullopt)
      << "a cordon alone takes nothing away";
  EXPECT_EQ(DepartureOf({}), std::nullopt);
}

TEST(Nodes, AreUnhealthyByTheConditionsThatTheJobNamesOrWithoutAnAnswer) {
  api::HealthPolicy named;
  named.node_fault = {
      .conditions = {{"GpuBad", api::ConditionStatus::kTrue}, {"Ready", api::ConditionStatus::kFalse}},
      .taints = {{"maintenance", ""}, {"drain", "NoExecute"}}};
  const std::string unreachable =
      R"({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}})";
  const struct {
    const char* name;
    std::string node;
    api::HealthPolicy policy;
    std::string reason;  // empty: no fault
    bool is_lost;
  } cases[] = {
      {"nothing is known", "{}", named, "", false},
      {"a good node", R"({"status": {"conditions": [{"type": "Ready", "status": "True"}]}})", named, "",
       false},
      {"no contact",
       R"({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})",
       {},
       "the node does not answer",
       true},
      {"unreachable", unreachable, {}, "the node does not answer", true},
      {"a kubelet that starts again",
       R"({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})",
       {},
       "",
       false},
      {"the same, where the job names it",
       R"({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})", named,
       "condition Ready of the node is False", false},
      {"a condition", R"({"status": {"conditions": [{"type": "GpuBad", "status": "True"}]}})", named,
       "condition GpuBad of the node is True", false},
      {"its other status", R"({"status": {"conditions": [{"type": "GpuBad", "status": "False"}]}})", named,
       "", false},
      {"a taint of any effect", R"({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}})",
       named, "the node has the taint maintenance", false},
      {"a taint of another effect", R"({"spec": {"taints": [{"key": "drain", "effect": "NoSchedule"}]}})",
       named, "", false},
      {"not named",
       R"({"spec": {"taints": [{"key": "maintenance", "effect": "NoSchedule"}]}})",
       {},
       "",
       false},
  };
  for (const auto& test : cases) {
    const auto fault = FaultOf(NodeOf(test.node), test.policy);
    EXPECT_EQ(fault ? fault->reason : "", test.reason) << test.name;
    EXPECT_EQ(fault && fault->is_lost, test.is_lost) << test.name;
  }
}

TEST(Nodes, AreUnchangedWhenOnlyTheirHeartbeatMoved) {
  const char* node = R"({"metadata": {"name": "a", "resourceVersion": "%"},
    "status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "%"}]}})";
  std::string before = node;
  std::string after = node;
  std::replace(before.begin(), before.end(), '%', '1');
  std::replace(after.begin(), after.end(), '%', '2');
  EXPECT_EQ(NodeOf(before), NodeOf(after));
}

}  // namespace
}  // namespace lockstep::reconcile
