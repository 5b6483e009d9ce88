#pragma once
// The Workload, the object that a job is for Kueue, as Kueue and the operator have left it. Pure.

#include <set>
#include <string>
#include <string_view>

#include "operator/kube/object.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload"};
inline constexpr kube::Resource kFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor"};
// The queue and pods that a Workload stands for (without what the API server sets), and the value of
// spec.suspend at that time. spec.active does not show that, because Kueue and administrators clear it, too.
inline constexpr const char* kAnnotationQueued = "lockstep.dev/queued";
inline constexpr const char* kAnnotationSuspended = "lockstep.dev/suspended";
inline constexpr const char* kPodSet = "main";  // the name of the only set of pods

// The job's Workload; null if there is none.
[[nodiscard]] const Json* WorkloadOf(const Observed& observed);

// A condition of a Workload; null if it is not set.
[[nodiscard]] const Json* FindWorkloadCondition(const Json& workload, std::string_view type);
[[nodiscard]] bool IsWorkloadTrue(const Json& workload, std::string_view type);
// Whether quota is reserved for the Workload.
[[nodiscard]] bool HoldsQuota(const Json& workload);

// The entry for the only set of pods in a list of a Workload; an empty object if there is none.
[[nodiscard]] Json EntryOfPods(const Json* list);
// The assignment of its admission.
[[nodiscard]] Json AssignmentOf(const Json& workload);
// The names of the assigned flavors.
[[nodiscard]] std::set<std::string> FlavorsOf(const Json& workload);

}  // namespace lockstep::reconcile
