#include "operator/reconcile/avoided_nodes.h"

#include <algorithm>

#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

constexpr std::chrono::hours kMemory{1};
constexpr std::size_t kMaxSuspicion = 400;
constexpr int kHighestWeight = 100;

bool IsOld(const api::AvoidedNode& node, WallTime now) { return !node.since || now - *node.since >= kMemory; }

}  // namespace

std::vector<std::string> AvoidedNodes(const api::TrainingJobStatus& status, WallTime now) {
  std::vector<std::string> names;
  for (const api::AvoidedNode& node : status.avoided_nodes) {
    if (!IsOld(node, now) && !node.may_return) names.push_back(node.name);
  }
  return names;
}

const api::AvoidedNode* FindSuspicion(const api::TrainingJobStatus& status, const NodeSuspicion& suspicion) {
  const std::string reason = Truncate(suspicion.reason, kMaxSuspicion);
  const auto found =
      std::find_if(status.avoided_nodes.begin(), status.avoided_nodes.end(),
                   [&](const auto& node) { return node.name == suspicion.node && node.reason == reason; });
  return found == status.avoided_nodes.end() ? nullptr : &*found;
}

bool MaySuspectMore(const api::TrainingJobStatus& status, std::size_t added, WallTime now) {
  const auto counting = std::count_if(status.avoided_nodes.begin(), status.avoided_nodes.end(),
                                      [&](const auto& node) { return !IsOld(node, now); });
  return static_cast<std::size_t>(counting) + added < kMostAvoidedNodes;
}

void AvoidNode(api::TrainingJobStatus& status, const NodeSuspicion& suspicion, WallTime now) {
  std::vector<api::AvoidedNode>& nodes = status.avoided_nodes;
  const std::vector<std::string> avoided = AvoidedNodes(status, now);
  const bool is_avoided = std::find(avoided.begin(), avoided.end(), suspicion.node) != avoided.end();
  std::erase_if(nodes, [&](const auto& node) { return node.name == suspicion.node || IsOld(node, now); });
  nodes.insert(nodes.begin(), {suspicion.node, now, Truncate(suspicion.reason, kMaxSuspicion),
                               suspicion.may_return && !is_avoided});
  if (nodes.size() > kMostAvoidedNodes) nodes.resize(kMostAvoidedNodes);
}

void PreferOtherNodes(Json& pod_spec, const std::vector<std::string>& nodes) {
  if (nodes.empty()) return;
  // By field, not by label: the host name label of a node may differ from its name.
  Json fields = Json::array();
  for (const std::string& node : nodes) {  // the API accepts one value in each
    fields.push_back({{"key", "metadata.name"}, {"operator", "NotIn"}, {"values", Json::array({node})}});
  }
  Json& preferences = pod_spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
  if (!preferences.is_array()) preferences = Json::array();
  preferences.push_back({{"weight", kHighestWeight}, {"preference", {{"matchFields", std::move(fields)}}}});
}

}  // namespace lockstep::reconcile
