#pragma once
// schedulingPolicy.gang: pods that are placed all together or not at all, by whatever the cluster has for it.
// One interface, several back ends; which of them are there is found out when the operator starts. Pure.
//
//   None          the time-out of gang_start.h, with any scheduler
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
// Kinds that a cluster may lack.
inline constexpr std::array kGangKinds = {kCoschedulingGroups, kVolcanoGroups};

// The back end of a job; Auto takes Volcano where the template names its scheduler, else Coscheduling where
// it is there. nullopt: the job wants none.
[[nodiscard]] std::optional<api::GangProvider> GangBackendOf(const api::TrainingJob& job,
                                                             const std::set<std::string>& served);
// Why the gang of the job cannot be: its back end is not there. Empty: it can.
[[nodiscard]] std::string WhyNoGang(const api::TrainingJob& job, const std::set<std::string>& served);

// Fewest pods that may start.
[[nodiscard]] int32_t GangSize(const api::TrainingJobSpec& spec);

[[nodiscard]] std::optional<OwnedObject> DesiredPodGroup(const api::TrainingJob& job,
                                                         const std::set<std::string>& served);
// Makes a pod a member of its job's group.
void JoinGang(Json& pod, const api::TrainingJob& job, const std::set<std::string>& served);

}  // namespace lockstep::reconcile
