#pragma once
// schedulingPolicy.gang: pods that are placed all together or not at all, by whatever the cluster has for it.
// One interface, several back ends; optional_kinds.h finds out which of them are there. Pure.
//
//   None          the time-out of gang_start.h, with any scheduler
//   Workload      PodGroup of Kubernetes itself, from 1.36 on, where its feature gates GenericWorkload (API
//                 server) and GangScheduling (scheduler) are on; v1alpha2 cannot be changed once it is made
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
// The newest first.
inline constexpr std::array kCoreGroups = {
    kube::Resource{"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"},
    kube::Resource{"scheduling.k8s.io", "v1alpha3", "podgroups", "PodGroup"},
    kube::Resource{"scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"},
};
// Kinds that a cluster may lack. Of one kind, only the first version that is served is to be used.
inline constexpr std::array kGangKinds = {kCoschedulingGroups, kVolcanoGroups, kCoreGroups[0], kCoreGroups[1],
                                          kCoreGroups[2]};

// The back end of a job; Auto takes Volcano where the template names its scheduler, else Coscheduling or
// Workload, the first that is there. nullopt: the job wants none.
[[nodiscard]] std::optional<api::GangProvider> GangBackendOf(const api::TrainingJob& job,
                                                             const std::set<std::string>& served);
// Why the gang of the job cannot be: its back end is not there. Empty: it can.
[[nodiscard]] std::string WhyNoGang(const api::TrainingJob& job, const std::set<std::string>& served);

// Fewest pods that may start.
[[nodiscard]] int32_t GangSize(const api::TrainingJobSpec& spec);

[[nodiscard]] std::optional<OwnedObject> DesiredPodGroup(const api::TrainingJob& job,
                                                         const std::set<std::string>& served);
// Whether the group is another than the job wants now, and cannot be changed; it is made anew as long as no
// pod has a node.
[[nodiscard]] bool GangIsOutdated(const Observed& observed);
// Whether pods that are made now belong to the gang. To Kubernetes' own only those that start together do: it
// holds back whoever comes later, where the job has become smaller or the others are of no group.
[[nodiscard]] bool JoinsGang(const Observed& observed);
// Makes a pod a member of its job's group.
void JoinGang(Json& pod, const api::TrainingJob& job, const std::set<std::string>& served);

}  // namespace lockstep::reconcile
