#include "operator/reconcile/kueue.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/desired.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/kueue_priority.h"
#include "operator/reconcile/kueue_topology.h"
#include "operator/reconcile/kueue_workload.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::reconcile {
namespace {

namespace reason = api::reason;

constexpr const char* kPodSetLabel = "kueue.x-k8s.io/podset";
constexpr const char* kWorkloadAnnotation = "kueue.x-k8s.io/workload";
constexpr std::size_t kMaxMessage = 1024;

void Merge(const Json* from, Json& into) {
  if (from != nullptr) into.update(*from);
}

void MergeTolerations(const Json* from, Json& into) {
  if (from == nullptr) return;
  if (!into.is_array()) into = Json::array();
  for (const Json& toleration : *from) {
    if (std::find(into.begin(), into.end(), toleration) == into.end()) into.push_back(toleration);
  }
}

// nullopt: a flavor is not in the cache yet.
std::optional<KueueAdmission> AdmissionOf(const Observed& observed, const Json& workload) {
  KueueAdmission admission;
  admission.labels[kPodSetLabel] = kPodSet;
  admission.annotations[kWorkloadAnnotation] = kube::KeyOf(workload).name;
  for (const std::string& name : FlavorsOf(workload)) {
    const auto flavor = observed.flavors.find(name);
    if (flavor == observed.flavors.end()) return std::nullopt;
    Merge(FindJson(flavor->second, {"spec", "nodeLabels"}), admission.node_selector);
    MergeTolerations(FindJson(flavor->second, {"spec", "tolerations"}), admission.tolerations);
  }
  const Json assigned = AssignmentOf(workload);
  if (const Json* count = FindJson(assigned, {"count"})) admission.pods = count->get<int32_t>();
  admission.is_placed = FindJson(assigned, {"topologyAssignment"}) != nullptr;
  const Json* checks = FindJson(workload, {"status", "admissionChecks"});
  for (const Json& check : checks == nullptr ? Json::array() : *checks) {
    const Json update = EntryOfPods(FindJson(check, {"podSetUpdates"}));
    Merge(FindJson(update, {"labels"}), admission.labels);
    Merge(FindJson(update, {"annotations"}), admission.annotations);
    Merge(FindJson(update, {"nodeSelector"}), admission.node_selector);
    MergeTolerations(FindJson(update, {"tolerations"}), admission.tolerations);
  }
  return admission;
}

// An elastic job may be admitted with fewer pods.
Json PodSetOf(const api::TrainingJobSpec& spec) {
  Json pods = {{"name", kPodSet}, {"count", spec.pod_count()}, {"template", spec.worker.pod_template}};
  pods["topologyRequest"] = TopologyRequestOf(spec.worker.pod_template);
  const std::string priority = PodPriorityClassOf(spec);
  if (!priority.empty()) pods["template"]["spec"]["priorityClassName"] = priority;
  const int32_t fewest = std::max(spec.min_replicas(), GangSize(spec)) + spec.standby_replicas;
  if (fewest < spec.pod_count()) pods["minCount"] = fewest;
  return pods;
}

bool DiffersIn(const char* annotation, const Observed& observed, const Json& workload) {
  const auto mark = [&](const Json& object) {
    return StringAt(object, {"metadata", "annotations", annotation});
  };
  return mark(workload) != mark(DesiredWorkload(observed).object);
}

bool IsOutdated(const Observed& observed, const Json& workload) {
  return DiffersIn(kAnnotationQueued, observed, workload);
}

struct Change {
  std::string_view type;
  bool status = false;
  std::string why;
  std::string message;
};

// Sets conditions of a Workload as Kueue's own job controllers do.
class StatusWriter {
 public:
  StatusWriter(const Json& workload, WallTime now) : workload_(workload), now_(now) {
    const Json* conditions = FindJson(workload, {"status", "conditions"});
    status_["conditions"] = conditions != nullptr ? *conditions : Json::array();
  }

  void Set(const Change& change) {
    Json& conditions = status_["conditions"];
    const std::string status = change.status ? "True" : "False";
    const Json* before = FindWorkloadCondition(workload_, change.type);
    const bool is_turned = before == nullptr || StringAt(*before, {"status"}) != status;
    const std::string since = is_turned ? FormatTime(now_) : StringAt(*before, {"lastTransitionTime"});
    conditions.erase(
        std::remove_if(conditions.begin(), conditions.end(),
                       [&](const Json& entry) { return StringAt(entry, {"type"}) == change.type; }),
        conditions.end());
    conditions.push_back({{"type", change.type},
                          {"status", status},
                          {"reason", change.why},
                          {"message", Truncate(change.message, kMaxMessage)},
                          {"lastTransitionTime", since}});
  }

  void ClearAdmission() { status_["admission"] = nullptr; }

  [[nodiscard]] PlannedAction Take(std::string why) && {
    return {PatchStatus{kWorkloads, kube::KeyOf(workload_).name,
                        StringAt(workload_, {"metadata", "resourceVersion"}), std::move(status_)},
            std::move(why)};
  }

 private:
  const Json& workload_;
  WallTime now_;
  Json status_;
};

// This frees the quota, so no pod may still use it.
void Finish(const Observed& observed, const Json& workload, std::vector<PlannedAction>& actions) {
  const bool is_used =
      std::any_of(observed.pods.begin(), observed.pods.end(), [](const Pod& pod) { return pod.IsActive(); });
  if (is_used || IsWorkloadTrue(workload, "Finished")) return;
  const auto& conditions = observed.job.status.conditions;
  const bool is_complete = api::IsTrue(conditions, api::condition::kComplete);
  const api::Condition* end =
      api::FindCondition(conditions, is_complete ? api::condition::kComplete : api::condition::kFailed);
  StatusWriter status(workload, observed.now);
  status.Set({"Finished", true, is_complete ? "Succeeded" : "Failed", end->message});
  actions.push_back(std::move(status).Take("the job has finished"));
}

// Once its pods are gone, the quota of an evicted job is free, and Kueue may queue it again.
void Release(const Observed& observed, const Json& workload, std::vector<PlannedAction>& actions) {
  const Json& evicted = *FindWorkloadCondition(workload, "Evicted");
  const std::string why = StringAt(evicted, {"reason"});
  const std::string message = StringAt(evicted, {"message"});
  StatusWriter status(workload, observed.now);
  status.Set({"Requeued", why == "Preempted" || why == "NodeFailures", why, message});
  status.Set({"QuotaReserved", false, "Pending", message});
  status.Set({"Admitted", false, "NoReservation", "The workload has no reservation"});
  status.Set({"PodsReady", false, "WaitForStart", "The pods of the job are gone"});
  status.ClearAdmission();
  actions.push_back(std::move(status).Take("the job was evicted and its pods are gone"));
}

// Once per admission: if pods fail later, the job recovers by itself.
void ReportReady(const Observed& observed, const Json& workload, const KueueAdmission& admission,
                 std::vector<PlannedAction>& actions) {
  const auto ready = std::count_if(observed.pods.begin(), observed.pods.end(),
                                   [](const Pod& pod) { return pod.ready && !pod.deleting; });
  if (IsWorkloadTrue(workload, "PodsReady") || ready < admission.pods.value_or(observed.job.spec.pod_count()))
    return;
  StatusWriter status(workload, observed.now);
  status.Set({"PodsReady", true, "Started", "All pods are ready"});
  actions.push_back(std::move(status).Take("all pods are ready"));
}

// Empty: there is nothing to write.
std::string WhyWorkloadIsDue(const Observed& observed, const Json* workload) {
  if (workload == nullptr) {
    const bool may_queue = !observed.job.spec.suspend && WhyNoPriority(observed).empty();
    return may_queue ? "the job queues" : "";
  }
  if (DiffersIn(kAnnotationSuspended, observed, *workload)) return "spec.suspend has changed";
  return IsPriorityOutdated(observed, *workload) ? "the job has another priority class" : "";
}

KueueState Waits(std::string_view why, std::string message) {
  return {.is_asked = true, .reason = why, .message = std::move(message)};
}

KueueState Unknown(std::string message) {
  KueueState state = Waits(reason::kQueueUnavailable, std::move(message));
  state.is_unknown = true;
  return state;
}

}  // namespace

KueueState KueueStateOf(const Observed& observed) {
  const std::string& queue = observed.job.spec.scheduling_policy.queue_name;
  if (queue.empty()) return {};
  if (!observed.served.contains(KeyOfKind(kWorkloads))) {
    return Unknown("spec.schedulingPolicy.queueName: the cluster does not serve " + KeyOfKind(kWorkloads) +
                   ", or the operator may not read it and " + KeyOfKind(kFlavors) +
                   "; install Kueue: the operator looks for it every minute");
  }
  const Json* workload = WorkloadOf(observed);
  if (workload == nullptr) {
    std::string why = WhyNoPriority(observed);
    return why.empty() ? Waits(reason::kQueued, "waits in queue " + queue)
                       : Waits(reason::kQueueUnavailable, std::move(why));
  }
  if (IsWorkloadTrue(*workload, "Evicted"))
    return Waits(reason::kEvicted, StringAt(*FindWorkloadCondition(*workload, "Evicted"), {"message"}));
  if (IsOutdated(observed, *workload))
    return Waits(reason::kQueued, "the job has changed and queues again in " + queue);
  if (!IsWorkloadTrue(*workload, "Admitted")) {
    const Json* reserved = FindWorkloadCondition(*workload, "QuotaReserved");
    const std::string detail = reserved == nullptr ? "" : ": " + StringAt(*reserved, {"message"});
    return Waits(reason::kQueued, "waits in queue " + queue + detail);
  }
  auto admission = AdmissionOf(observed, *workload);
  if (!admission) {
    const std::set<std::string> names = FlavorsOf(*workload);
    return Unknown("not all flavors that the job was admitted with are there: " +
                   Join({names.begin(), names.end()}, ", "));
  }
  return {.is_asked = true, .admission = std::move(admission)};
}

api::TrainingJobSpec AsAdmitted(api::TrainingJobSpec spec, const KueueAdmission& admission) {
  if (admission.pods)
    spec.worker.replicas = std::clamp(*admission.pods - spec.standby_replicas, 1, spec.worker.replicas);
  return spec;
}

void AddAdmission(Json& pod, const KueueAdmission& admission) {
  if (!admission.labels.empty()) Merge(&admission.labels, pod["metadata"]["labels"]);
  if (!admission.annotations.empty()) Merge(&admission.annotations, pod["metadata"]["annotations"]);
  if (!admission.node_selector.empty()) Merge(&admission.node_selector, pod["spec"]["nodeSelector"]);
  if (!admission.tolerations.empty()) MergeTolerations(&admission.tolerations, pod["spec"]["tolerations"]);
  if (admission.is_placed) AwaitPlace(pod);
}

OwnedObject DesiredWorkload(const Observed& observed) {
  const api::TrainingJob& job = observed.job;
  Json spec = {{"queueName", job.spec.scheduling_policy.queue_name},
               {"podSets", Json::array({PodSetOf(job.spec)})}};
  Json metadata = OwnedMetadata(job, "distributedtrainingjob-" + job.metadata.name);
  metadata["annotations"] = {{kAnnotationQueued, StableHash(DumpJson(spec))},
                             {kAnnotationSuspended, job.spec.suspend ? "true" : "false"}};
  spec["active"] = !job.spec.suspend;
  spec.update(DesiredPriority(observed, WorkloadOf(observed)));
  return {kWorkloads, {{"metadata", std::move(metadata)}, {"spec", std::move(spec)}}};
}

void PlanKueue(const Observed& observed, const KueueState& state, const api::TrainingJobStatus& planned,
               std::vector<PlannedAction>& actions) {
  const Json* workload = WorkloadOf(observed);
  const bool is_finished = api::IsFinished(observed.job.status.conditions);
  if (is_finished && state.is_asked && workload != nullptr) return Finish(observed, *workload, actions);
  if (is_finished || api::IsFinished(planned.conditions)) return;
  if (state.reason == reason::kEvicted && HoldsQuota(*workload) && observed.pods.empty())
    return Release(observed, *workload, actions);
  if (!IsValid(observed)) return;
  const bool is_unwanted = workload != nullptr && !state.is_asked;
  const bool is_outdated = workload != nullptr && state.is_asked && IsOutdated(observed, *workload);
  if (is_unwanted || (is_outdated && observed.pods.empty())) {
    actions.push_back({DeleteObject{kWorkloads, kube::KeyOf(*workload).name, kube::UidOf(*workload)},
                       is_unwanted ? "the job names no queue" : "the job has changed and queues again"});
    return;
  }
  if (!state.is_asked || is_outdated || (state.is_unknown && workload == nullptr)) return;
  if (const std::string why = WhyWorkloadIsDue(observed, workload); !why.empty()) {
    OwnedObject desired = DesiredWorkload(observed);
    // Others write to the status, too: a decision from an older version must not revert their writes.
    if (workload != nullptr)
      desired.object["metadata"]["resourceVersion"] = StringAt(*workload, {"metadata", "resourceVersion"});
    actions.push_back({ApplyObject{desired.resource, std::move(desired.object)}, why});
    return;
  }
  if (state.admission) ReportReady(observed, *workload, *state.admission, actions);
}

}  // namespace lockstep::reconcile
