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
#include <vector>

#include "operator/reconcile/action.h"
#include "operator/reconcile/observed.h"
#include "operator/reconcile/owned_objects.h"

namespace lockstep::reconcile {

// What the pods of an admitted job get in addition, in the form of a pod template.
struct KueueAdmission {
  std::optional<int32_t> pods;  // absent: as many as requested
  Json labels = Json::object();
  Json annotations = Json::object();
  Json node_selector = Json::object();
  Json tolerations = Json::array();
  bool is_placed = false;  // topology-aware scheduling: Kueue selects the nodes
};

struct KueueState {
  bool is_asked = false;  // the job names a queue
  std::optional<KueueAdmission> admission;
  std::string_view reason;  // from api::reason: why there is no admission
  std::string message;
  bool is_unknown = false;  // the state of Kueue cannot be read: running pods are not stopped
};

[[nodiscard]] KueueState KueueStateOf(const Observed& observed);

// The spec of an admitted job, with the admitted number of pods.
[[nodiscard]] api::TrainingJobSpec AsAdmitted(api::TrainingJobSpec spec, const KueueAdmission& admission);
// Applies the admission to a pod. It is not applied to the template: running pods stay when a flavor changes.
void AddAdmission(Json& pod, const KueueAdmission& admission);

[[nodiscard]] OwnedObject DesiredWorkload(const Observed& observed);
// The writes for Kueue. `planned` is the job's status after this pass.
void PlanKueue(const Observed& observed, const KueueState& state, const api::TrainingJobStatus& planned,
               std::vector<PlannedAction>& actions);

}  // namespace lockstep::reconcile
