#pragma once
// Kueue's topology-aware scheduling: pods that are to be close together, as annotations of their template say
// in Kueue's words. The request goes into the Workload. Kueue answers with its admission which nodes the pods
// get, and hands these out itself, pod by pod: each waits for that at a scheduling gate. Pure.

#include <string>

#include "runtime/common/base/json.h"

namespace lockstep::reconcile {

// podSets[].topologyRequest. Pods of neighbouring slots come to lie side by side, as neighbouring ranks talk
// most.
[[nodiscard]] Json TopologyRequestOf(const Json& pod_template);

// Puts a pod of a set that has its place in the topology before Kueue's gate.
void AwaitPlace(Json& pod);

}  // namespace lockstep::reconcile
