#pragma once
// spec.schedulingPolicy.queueName: Kueue decides when, where and with how many pods the job runs. For Kueue
// the job is a Workload. While the Workload is not admitted, the job is treated as suspended. Once it is, the
// pods get what the flavors of the quota and the admission checks require. The operator writes to the
// Workload's status what Kueue's own job controllers write there: that all pods are ready, that those of an
// evicted job are gone (only then is the quota free), and how the job ended. Pure.
//
// An admission does not change: when the job's size, template or queue changes, it saves, stops and queues
// again.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/observed.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload"};
inline constexpr kube::Resource kFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor"};
// The queue and pods that a Workload stands for (without what the API server sets), and the value of
// spec.suspend at that time. spec.active does not show that, because Kueue and administrators clear it, too.
inline constexpr const char* kAnnotationQueued = "lockstep.dev/queued";
inline constexpr const char* kAnnotationSuspended = "lockstep.dev/suspended";

// What the pods of an admitted job get in addition, in the form of a pod template.
struct Admission {
  std::optional<int32_t> pods;  // absent: as many as requested
  Json labels = Json::object();
  Json annotations = Json::object();
  Json node_selector = Json::object();
  Json tolerations = Json::array();
  bool is_placed = false;  // topology-aware scheduling: Kueue selects the nodes
};

struct QueueState {
  bool is_asked = false;  // the job names a queue
  std::optional<Admission> admission;
  std::string_view reason;  // from api::reason: why there is no admission
  std::string message;
  bool is_unknown = false;  // the state of Kueue cannot be read: running pods are not stopped
};

[[nodiscard]] QueueState QueueStateOf(const Observed& observed);

// The spec of an admitted job, with the admitted number of pods.
[[nodiscard]] api::TrainingJobSpec AsAdmitted(api::TrainingJobSpec spec, const Admission& admission);
// Applies the admission to a pod. It is not applied to the template: running pods stay when a flavor changes.
void JoinQueue(Json& pod, const Admission& admission);

[[nodiscard]] OwnedObject DesiredWorkload(const Observed& observed);
// Whether quota is reserved for the Workload.
[[nodiscard]] bool HoldsQuota(const Json& workload);

// The writes for Kueue. `planned` is the job's status after this pass.
void PlanQueue(const Observed& observed, const QueueState& state, const api::TrainingJobStatus& planned,
               std::vector<PlannedAction>& actions);

// The names of the assigned flavors.
[[nodiscard]] std::set<std::string> FlavorsOf(const Json& workload);

}  // namespace lockstep::reconcile
