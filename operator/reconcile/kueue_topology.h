#pragma once
// Kueue's topology-aware scheduling: pods that should be close together, requested by annotations of their
// template. The request is part of the Workload. With its admission Kueue selects nodes, and assigns them pod
// by pod; each pod waits for that at a scheduling gate. Pure.

#include <string>

#include "runtime/common/base/json.h"

namespace lockstep::reconcile {

// podSets[].topologyRequest. Pods of adjacent slots are placed next to each other, because adjacent ranks
// communicate most.
[[nodiscard]] Json TopologyRequestOf(const Json& pod_template);

// Adds Kueue's scheduling gate to a pod of a set with a topology.
void AwaitPlace(Json& pod);

}  // namespace lockstep::reconcile
