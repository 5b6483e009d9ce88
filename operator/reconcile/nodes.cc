#include "operator/reconcile/nodes.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::reconcile {
namespace {

bool HasTaint(const Node& node, std::string_view key, std::string_view effect) {
  return std::any_of(node.taints.begin(), node.taints.end(), [&](const Taint& taint) {
    return taint.key == key && (effect.empty() || taint.effect == effect);
  });
}

bool HasCondition(const Node& node, std::string_view type, std::string_view status) {
  const auto found = node.conditions.find(std::string(type));
  return found != node.conditions.end() && found->second == status;
}

}  // namespace

const kube::FieldMask& NodeFields() {
  static const kube::FieldMask mask{
      {"metadata", "name"},
      {"metadata", "uid"},
      {"metadata", "resourceVersion"},
      {"spec", "taints", "*", "key"},
      {"spec", "taints", "*", "effect"},
      {"status", "conditions", "*", "type"},
      {"status", "conditions", "*", "status"},
  };
  return mask;
}

Node NodeFromJson(const Json& json) {
  Node node;
  if (const Json* conditions = FindJson(json, {"status", "conditions"}); conditions != nullptr) {
    for (const Json& condition : *conditions) {
      node.conditions[StringAt(condition, {"type"})] = StringAt(condition, {"status"});
    }
  }
  if (const Json* taints = FindJson(json, {"spec", "taints"}); taints != nullptr) {
    for (const Json& taint : *taints) {
      node.taints.push_back({StringAt(taint, {"key"}), StringAt(taint, {"effect"})});
    }
  }
  return node;
}

bool IsLost(const Node& node) {
  static constexpr std::array<std::string_view, 2> kTaints = {"node.kubernetes.io/unreachable",
                                                              "node.kubernetes.io/out-of-service"};
  return HasCondition(node, "Ready", "Unknown") ||
         std::any_of(kTaints.begin(), kTaints.end(),
                     [&](std::string_view key) { return HasTaint(node, key, ""); });
}

std::optional<std::string> DepartureOf(const Node& node) {
  static constexpr std::array<std::string_view, 7> kTaints = {
      "aws-node-termination-handler/spot-itn",
      "aws-node-termination-handler/scheduled-maintenance",
      "aws-node-termination-handler/asg-lifecycle-termination",
      "cloud.google.com/impending-node-termination",
      "karpenter.sh/disrupted",
      "karpenter.sh/disruption",
      "ToBeDeletedByClusterAutoscaler"};
  const auto found = std::find_if(kTaints.begin(), kTaints.end(),
                                  [&](std::string_view key) { return HasTaint(node, key, ""); });
  if (found == kTaints.end()) return std::nullopt;
  return "the node has the taint " + std::string(*found);
}

std::optional<NodeFault> FaultOf(const Node& node, const api::HealthPolicy& policy) {
  if (IsLost(node)) return NodeFault{.is_lost = true, .reason = "the node does not answer"};
  if (!policy.node_fault) return std::nullopt;
  for (const api::ConditionMatch& match : policy.node_fault->conditions) {
    const std::string_view status = api::NameOf(match.status);
    if (HasCondition(node, match.type, status))
      return NodeFault{.reason = "condition " + match.type + " of the node is " + std::string(status)};
  }
  for (const api::TaintMatch& match : policy.node_fault->taints) {
    if (HasTaint(node, match.key, match.effect))
      return NodeFault{.reason = "the node has the taint " + match.key};
  }
  return std::nullopt;
}

}  // namespace lockstep::reconcile
