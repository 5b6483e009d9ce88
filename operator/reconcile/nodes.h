#pragma once
// A node as the decisions see it, and what counts as its fault. Pure.
//
// A node is *lost* once the node controller has no contact with it: those of its pods that the rendezvous does
// not hear either are replaced at once, though they still say Running. One that only says NotReady is not:
// kubelets say so for seconds when they start again, while their pods train on; the heartbeats tell whether
// they do. healthPolicy.nodeFault can name that, too.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "operator/kube/slim.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"

namespace lockstep::reconcile {

struct Taint {
  std::string key;
  std::string effect;

  friend bool operator==(const Taint&, const Taint&) = default;
};

struct Node {
  std::map<std::string, std::string> conditions;  // status by type
  std::vector<Taint> taints;

  friend bool operator==(const Node&, const Node&) = default;
};

// The fields that NodeFromJson reads: what the cache keeps of a node.
[[nodiscard]] const kube::FieldMask& NodeFields();
[[nodiscard]] Node NodeFromJson(const Json& json);

[[nodiscard]] bool IsLost(const Node& node);

struct NodeFault {
  bool is_lost = false;
  std::string reason;  // for people; the same as long as the fault is
};

[[nodiscard]] std::optional<NodeFault> FaultOf(const Node& node, const api::HealthPolicy& policy);

}  // namespace lockstep::reconcile
