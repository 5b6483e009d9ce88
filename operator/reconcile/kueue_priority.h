#pragma once
// The priority of a job in its queue, determined as by Kueue's own job controllers: the WorkloadPriorityClass
// in the job's label kueue.x-k8s.io/priority-class, else the PriorityClass of its pods, else the cluster's
// default. Pure.
//
// It is determined once, when the Workload is created. Later only a change of the label changes it, within
// what the API server permits while quota is reserved.

#include <optional>
#include <string>

#include "operator/kube/object.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kWorkloadPriorityClasses{"kueue.x-k8s.io", "v1beta2",
                                                         "workloadpriorityclasses", "WorkloadPriorityClass"};
inline constexpr kube::Resource kPriorityClasses{"scheduling.k8s.io", "v1", "priorityclasses",
                                                 "PriorityClass"};

struct PriorityClassName {
  kube::Resource kind;
  std::string name;
};

// The class that the job names; nullopt: it names none.
[[nodiscard]] std::optional<PriorityClassName> PriorityClassOf(const api::TrainingJob& job);
// The PriorityClass of its pods.
[[nodiscard]] std::string PodPriorityClassOf(const api::TrainingJobSpec& spec);

// Why the priority cannot be determined: the class that the job names does not exist. Empty: it can.
[[nodiscard]] std::string WhyNoPriority(const Observed& observed);

// The desired fields priorityClassRef and priority of the Workload's spec; `workload` is null if there is
// none yet.
[[nodiscard]] Json DesiredPriority(const Observed& observed, const Json* workload);
// Whether the Workload has other values.
[[nodiscard]] bool IsPriorityOutdated(const Observed& observed, const Json& workload);

}  // namespace lockstep::reconcile
