#pragma once
// schedulingPolicy.gang: pods that are scheduled together or not at all, with whatever the cluster offers for
// it. One interface, several back ends; optional_kinds.h finds out which of them are installed. Pure.
//
//   None          the time-out of gang_start.h, with any scheduler
//   Workload      PodGroup of Kubernetes itself, from 1.36 on, if its feature gates GenericWorkload (API
//                 server) and GangScheduling (scheduler) are on; a v1alpha2 group is immutable
//   Coscheduling  PodGroup of the scheduler plugins
//   Volcano       PodGroup of Volcano

#include <array>
#include <optional>
#include <string>

#include "operator/reconcile/observed.h"
#include "operator/reconcile/owned_objects.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kCoschedulingGroups{"scheduling.x-k8s.io", "v1alpha1", "podgroups",
                                                    "PodGroup"};
inline constexpr kube::Resource kVolcanoGroups{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
// Newest version first.
inline constexpr std::array kCoreGroups = {
    kube::Resource{"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"},
    kube::Resource{"scheduling.k8s.io", "v1alpha3", "podgroups", "PodGroup"},
    kube::Resource{"scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"},
};
// Kinds that a cluster may lack. Of several versions of a kind, only the first that is served is used.
inline constexpr std::array kGangKinds = {kCoschedulingGroups, kVolcanoGroups, kCoreGroups[0], kCoreGroups[1],
                                          kCoreGroups[2]};

// The back end of a job. Auto selects Volcano if the template names its scheduler, else the first of
// Coscheduling and Workload that is served. nullopt: the job does not ask for a gang.
[[nodiscard]] std::optional<api::GangProvider> GangBackendOf(const api::TrainingJob& job,
                                                             const std::set<std::string>& served);
// Why the gang of the job cannot be created: its back end is not installed. Empty: it can.
[[nodiscard]] std::string WhyNoGang(const api::TrainingJob& job, const std::set<std::string>& served);

// The fewest pods that may start.
[[nodiscard]] int32_t GangSize(const api::TrainingJobSpec& spec);

[[nodiscard]] std::optional<OwnedObject> DesiredPodGroup(const api::TrainingJob& job,
                                                         const std::set<std::string>& served);
// Whether the group differs from what the job needs now and cannot be changed. It is recreated if no pod has
// a node yet.
[[nodiscard]] bool GangIsOutdated(const Observed& observed);
// Whether pods that are created now join the gang. A group of Kubernetes itself takes only pods that start
// together: it would hold back later pods if the job has shrunk or the running pods are in no group.
[[nodiscard]] bool JoinsGang(const Observed& observed);
// Makes a pod a member of its job's group.
void JoinGang(Json& pod, const api::TrainingJob& job, const std::set<std::string>& served);

}  // namespace lockstep::reconcile
