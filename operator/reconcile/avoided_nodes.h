#pragma once
// Nodes that new pods of a job avoid: status.avoidedNodes. Pure.
//
// It is a scheduling preference, not a requirement: the suspicion may be wrong, and on a small cluster a job
// must not wait without end.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

inline constexpr std::size_t kMostAvoidedNodes = 64;

struct NodeSuspicion {
  std::string node;
  std::string reason;
  bool may_return = false;  // only recorded: new pods may be scheduled there
};

// Nodes that are still suspected at `now`, except those with may_return.
[[nodiscard]] std::vector<std::string> AvoidedNodes(const api::TrainingJobStatus& status, WallTime now);

// The entry of the status for this suspicion, whatever its age; null: there is none.
[[nodiscard]] const api::AvoidedNode* FindSuspicion(const api::TrainingJobStatus& status,
                                                    const NodeSuspicion& suspicion);

// Whether the status has room for one more without dropping an entry that still counts.
[[nodiscard]] bool MaySuspectMore(const api::TrainingJobStatus& status, std::size_t added, WallTime now);

// Adds a node or renews its suspicion. Drops expired entries, then the oldest if there are too many.
void AvoidNode(api::TrainingJobStatus& status, const NodeSuspicion& suspicion, WallTime now);

// Adds the preference to a pod's spec, in addition to the affinity of its template.
void PreferOtherNodes(Json& pod_spec, const std::vector<std::string>& nodes);

}  // namespace lockstep::reconcile
