#pragma once
// A node as the decisions need it, and which states count as a fault. Pure.
//
// A node is *lost* once the node controller has no contact with it. Pods there that send no heartbeats either
// are replaced at once, although they still have the phase Running. A node that is only NotReady is not lost:
// a kubelet reports that for seconds when it restarts, while its pods continue to train, as their heartbeats
// show. healthPolicy.nodeFault can name that condition, too.

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

// The fields that NodeFromJson reads, which the cache keeps.
[[nodiscard]] const kube::FieldMask& NodeFields();
[[nodiscard]] Node NodeFromJson(const Json& json);

[[nodiscard]] bool IsLost(const Node& node);

struct NodeFault {
  bool is_lost = false;
  std::string reason;  // for people; does not change while the fault lasts
};

// Why the node is about to be taken away, as the taints of autoscalers and of the handlers of spot and maintenance notices
// say; nothing: no taint says so.
[[nodiscard]] std::optional<std::string> DepartureOf(const Node& node);

[[nodiscard]] std::optional<NodeFault> FaultOf(const Node& node, const api::HealthPolicy& policy);

}  // namespace lockstep::reconcile
