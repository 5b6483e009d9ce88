#pragma once
// The label by which the Service of the rendezvous finds the leader's pod. A pod that bears it and does not
// lead gets connections that it refuses, so it is removed until that has been done: by the pod itself when
// its operator starts, and by the leader from all other pods. Any thread.

#include <functional>
#include <stop_token>

#include "operator/kube/client.h"
#include "runtime/common/base/clock.h"

namespace lockstep::rendezvous {

// Waits, for at most `time`.
using LabelPause = std::function<void(Milliseconds time, const std::stop_token& stop)>;

// Sets or removes the label on one pod. NotFound is no error: the operator may run outside of a pod.
[[nodiscard]] Result<void> LabelLeader(kube::KubeWriter& writer, const kube::ObjectKey& pod, bool leads);

// Labels `leader` and no other pod of its installation: of those with the same app.kubernetes.io/name,
// instance and component.
[[nodiscard]] Result<void> LabelLeaderOnly(kube::KubeClient& client, const kube::ObjectKey& leader);

// Removes the label from `pod`, and tries again with back-off until that is done, the API server refuses it,
// or `stop`.
void RemoveLeaderLabel(kube::KubeWriter& writer, const kube::ObjectKey& pod, const std::stop_token& stop,
                       const LabelPause& pause);

// LabelLeaderOnly every half a minute until `stop`; after a failure again with back-off.
void KeepLeaderLabel(kube::KubeClient& client, const kube::ObjectKey& leader, const std::stop_token& stop,
                     const LabelPause& pause);

}  // namespace lockstep::rendezvous
