#pragma once
// spec.schedulingPolicy.queueName: Kueue says when, where and with how many pods the job may run. The job is
// one of Kueue's Workloads. While that is not admitted the job is as if suspended; once it is, its pods take
// what the flavors of the quota and the admission checks ask for. Back to Kueue goes, in the status of the
// Workload, what its own job controllers say there: that all pods are ready, that those of an evicted job are
// gone (only then is the quota free), and how the job ended. Pure.
//
// What was admitted does not change: a job of another size, template or queue saves, stops and queues anew.

#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/observed.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/plan.h"

namespace lockstep::reconcile {

inline constexpr kube::Resource kWorkloads{"kueue.x-k8s.io", "v1beta2", "workloads", "Workload"};
inline constexpr kube::Resource kFlavors{"kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor"};
// Of which queue and pods a Workload is (what the API server fills in does not count), and what spec.suspend
// was: spec.active alone does not tell, for Kueue and its administrators end it too.
inline constexpr const char* kAnnotationQueued = "lockstep.dev/queued";
inline constexpr const char* kAnnotationSuspended = "lockstep.dev/suspended";

// What the pods of an admitted job get in addition, in the words of a pod template.
struct Admission {
  std::optional<int32_t> pods;  // absent: all that were asked for
  Json labels = Json::object();
  Json annotations = Json::object();
  Json node_selector = Json::object();
  Json tolerations = Json::array();
  bool is_placed = false;  // in a topology: Kueue says node by node where its pods go
};

struct QueueState {
  bool is_asked = false;  // the job names a queue
  std::optional<Admission> admission;
  std::string_view reason;  // of api::reason: why there is none
  std::string message;
  bool is_unknown = false;  // what Kueue says cannot be read: nobody is stopped for that
};

[[nodiscard]] QueueState QueueStateOf(const Observed& observed);

// The spec by which an admitted job runs.
[[nodiscard]] api::TrainingJobSpec AsAdmitted(api::TrainingJobSpec spec, const Admission& admission);
// Puts a pod where it was admitted. Not in the template: pods that run stay where a flavor changes.
void JoinQueue(Json& pod, const Admission& admission);

[[nodiscard]] OwnedObject DesiredWorkload(const Observed& observed);
// Whether quota is reserved for the Workload.
[[nodiscard]] bool HoldsQuota(const Json& workload);

// What is to be written for Kueue; `planned` is the job's status after this pass.
void PlanQueue(const Observed& observed, const QueueState& state, const api::TrainingJobStatus& planned,
               std::vector<PlannedAction>& actions);

// The names of the flavors that were assigned.
[[nodiscard]] std::set<std::string> FlavorsOf(const Json& workload);

}  // namespace lockstep::reconcile
