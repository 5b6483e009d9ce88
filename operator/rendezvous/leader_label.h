#pragma once
// The label by which the Service of the rendezvous selects operator pods that lead jobs. A labelled pod that
// does not lead would get connections that it rejects. Therefore the label is removed, with retries: by the
// pod itself when its operator starts, and by each leader from all pods that do not lead. Any thread.

#include <functional>
#include <set>
#include <stop_token>
#include <string>

#include "operator/kube/backoff.h"
#include "operator/kube/client.h"

namespace lockstep::rendezvous {

// Sets or removes the label of one pod. NotFound is not an error: the operator may run outside of a pod.
[[nodiscard]] Result<void> LabelLeader(kube::KubeWriter& writer, const kube::ObjectKey& pod, bool leads);

// Labels `leader`, and removes the label from pods of this installation that are not among `leaders`. Pods of
// an installation have the same app.kubernetes.io/name, instance and component.
[[nodiscard]] Result<void> LabelLeadersOnly(kube::KubeClient& client, const kube::ObjectKey& leader,
                                            const std::set<std::string>& leaders);

// Removes the label from `pod`. Retries with back-off until it succeeds, the API server rejects it, or
// `stop`.
void RemoveLeaderLabel(kube::KubeWriter& writer, const kube::ObjectKey& pod, const std::stop_token& stop,
                       const kube::Pause& pause);

// Calls LabelLeadersOnly every ten seconds until `stop`; after a failure sooner, with back-off. `leaders`
// returns the names of the pods that lead now.
void KeepLeaderLabel(kube::KubeClient& client, const kube::ObjectKey& leader,
                     const std::function<std::set<std::string>()>& leaders, const std::stop_token& stop,
                     const kube::Pause& pause);

}  // namespace lockstep::rendezvous
