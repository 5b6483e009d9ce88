#pragma once
// Nodes that new pods of a job go round: status.avoidedNodes. Pure.
//
// It is a wish, not a demand: a node may be suspected wrongly, and a job must not wait for ever on a small
// cluster.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

inline constexpr std::size_t kMostAvoidedNodes = 64;

struct NodeSuspicion {
  std::string node;
  std::string reason;
  bool may_return = false;  // only noted: new pods may go there
};

// Those still suspected at `now`, but for those to which pods may return.
[[nodiscard]] std::vector<std::string> AvoidedNodes(const api::TrainingJobStatus& status, WallTime now);

// What the status says of that very suspicion; null: nothing. However old.
[[nodiscard]] const api::AvoidedNode* FindSuspicion(const api::TrainingJobStatus& status,
                                                    const NodeSuspicion& suspicion);

// Whether one more can be added without pushing out another that still counts.
[[nodiscard]] bool MaySuspectMore(const api::TrainingJobStatus& status, std::size_t added, WallTime now);

// Adds a node or renews its suspicion, and drops what is old; what was added first where there are too many.
void AvoidNode(api::TrainingJobStatus& status, const NodeSuspicion& suspicion, WallTime now);

// Adds the wish to a pod's spec, beside what its template says.
void PreferOtherNodes(Json& pod_spec, const std::vector<std::string>& nodes);

}  // namespace lockstep::reconcile
