#pragma once
// The label by which the Service of the rendezvous finds the pods of the operator that lead a part of the jobs. A
// pod that bears it and does not lead gets connections that it refuses, so it is removed until that has been done:
// by the pod itself when its operator starts, and by each leader from all pods that do not lead. Any thread.

#include <functional>
#include <set>
#include <stop_token>
#include <string>

#include "operator/kube/client.h"
#include "runtime/common/base/clock.h"

namespace lockstep::rendezvous {

// Waits, for at most `time`.
using LabelPause = std::function<void(Milliseconds time, const std::stop_token& stop)>;

// Sets or removes the label on one pod. NotFound is no error: the operator may run outside of a pod.
[[nodiscard]] Result<void> LabelLeader(kube::KubeWriter& writer, const kube::ObjectKey& pod, bool leads);

// Labels `leader`, and removes the label from pods of its installation that are not among `leaders`: from those
// with the same app.kubernetes.io/name, instance and component.
[[nodiscard]] Result<void> LabelLeadersOnly(kube::KubeClient& client, const kube::ObjectKey& leader,
                                            const std::set<std::string>& leaders);

// Removes the label from `pod`, and tries again with back-off until that is done, the API server refuses it,
// or `stop`.
void RemoveLeaderLabel(kube::KubeWriter& writer, const kube::ObjectKey& pod, const std::stop_token& stop,
                       const LabelPause& pause);

// LabelLeadersOnly every ten seconds until `stop`; after a failure again with back-off. `leaders`: the names of
// the pods that lead now.
void KeepLeaderLabel(kube::KubeClient& client, const kube::ObjectKey& leader,
                     const std::function<std::set<std::string>()>& leaders, const std::stop_token& stop,
                     const LabelPause& pause);

}  // namespace lockstep::rendezvous
