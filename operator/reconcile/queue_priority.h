#pragma once
// With which priority a job stands in its queue, found as Kueue's own job controllers find it: the
// WorkloadPriorityClass that the job's label kueue.x-k8s.io/priority-class names, else the PriorityClass of
// its pods, else the one that is the cluster's default. Pure.
//
// It is looked up once, when the Workload is made; from then on only the label moves it, and only as far as
// the API server lets it while quota is reserved.

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

// What the job names; nullopt: nothing.
[[nodiscard]] std::optional<PriorityClassName> PriorityClassOf(const api::TrainingJob& job);
// The PriorityClass of its pods.
[[nodiscard]] std::string PodPriorityClassOf(const api::TrainingJobSpec& spec);

// Why the priority cannot be told: the class that the job names is not there. Empty: it can.
[[nodiscard]] std::string WhyNoPriority(const Observed& observed);

// The fields priorityClassRef and priority of the Workload's spec, as they are to be; `workload` is null
// where there is none yet.
[[nodiscard]] Json DesiredPriority(const Observed& observed, const Json* workload);
// Whether the Workload's are others.
[[nodiscard]] bool IsPriorityOutdated(const Observed& observed, const Json& workload);

}  // namespace lockstep::reconcile
