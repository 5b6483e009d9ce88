#include "operator/reconcile/removal_pod.h"

#include <utility>

#include "operator/reconcile/desired_pod.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/program_of.h"

namespace lockstep::reconcile {
namespace {

// A list of what to keep, not of what to leave out: devices, probes, ports, init containers and scheduling
// gates are for training.
constexpr const char* kOfPod[] = {"volumes",          "serviceAccountName", "automountServiceAccountToken",
                                  "imagePullSecrets", "nodeSelector",       "tolerations",
                                  "securityContext",  "runtimeClassName",   "schedulerName",
                                  "hostNetwork",      "hostAliases",        "dnsPolicy",
                                  "dnsConfig",        "enableServiceLinks", "priorityClassName"};
constexpr const char* kOfContainer[] = {"name",    "image",        "imagePullPolicy", "env",
                                        "envFrom", "volumeMounts", "volumeDevices",   "securityContext"};

template <std::size_t N>
Json Keep(const Json& object, const char* const (&keys)[N]) {
  Json kept = Json::object();
  for (const char* key : keys) {
    if (const auto found = object.find(key); found != object.end()) kept[key] = *found;
  }
  return kept;
}

// Of a queue they would make it wait for quota.
Json WithoutQueue(const Json* texts) {
  Json kept = Json::object();
  if (texts == nullptr) return kept;
  for (const auto& [key, value] : texts->items()) {
    if (!key.starts_with("kueue.x-k8s.io/")) kept[key] = value;
  }
  return kept;
}

// Cloud providers and meshes tell by labels and annotations who may reach the store.
Json Metadata(const api::TrainingJob& job) {
  Json labels = WithoutQueue(FindJson(job.spec.worker.pod_template, {"metadata", "labels"}));
  labels[api::kLabelJob] = job.metadata.name;
  labels[api::kLabelManagedBy] = api::kManagedByValue;
  labels[api::kLabelName] = api::kRemovalNameValue;
  return {{"name", api::RemovalPodName(job.metadata.name, job.metadata.uid)},
          {"namespace", job.metadata.namespace_name},
          {"labels", std::move(labels)},
          {"annotations", WithoutQueue(FindJson(job.spec.worker.pod_template, {"metadata", "annotations"}))}};
}

Json Container(const api::TrainingJob& job, const Json& pod_spec) {
  const Json* trainer = api::FindTrainer(job.spec.worker);
  Json container = trainer != nullptr ? Keep(*trainer, kOfContainer) : Json::object();
  Restrict(container, pod_spec);
  if (job.spec.checkpoint && job.spec.checkpoint->secret_ref)
    ListIn(container, "envFrom")
        .push_back({{"secretRef", {{"name", job.spec.checkpoint->secret_ref->name}}}});
  container["command"] = RemovalCommand(job);
  // Both, or a quota of the namespace refuses it.
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}},
                            {"limits", {{"cpu", "1"}, {"memory", "1Gi"}}}};
  container["terminationMessagePolicy"] = "FallbackToLogsOnError";
  return container;
}

}  // namespace

// Forced: that no worker is left the operator knows, and its marker may be a minute younger.
std::vector<std::string> RemovalCommand(const api::TrainingJob& job) {
  const std::string uri = job.spec.checkpoint ? job.spec.checkpoint->uri : "";
  return {"lockstep", "checkpoint", "rm", uri, "--all-of-job", job.metadata.uid, "--force"};
}

Json DesiredRemovalPod(const api::TrainingJob& job, bool has_account) {
  const Json* given = FindJson(job.spec.worker.pod_template, {"spec"});
  Json spec = given != nullptr ? Keep(*given, kOfPod) : Json::object();
  // A volume may be bound to some nodes; that pods of one job keep together means nothing here.
  if (const Json* of_nodes = given != nullptr ? FindJson(*given, {"affinity", "nodeAffinity"}) : nullptr)
    spec["affinity"]["nodeAffinity"] = *of_nodes;
  SetDefault(spec, "automountServiceAccountToken", false);
  SetDefault(spec, "enableServiceLinks", false);
  if (has_account) spec["serviceAccountName"] = api::ServiceAccountName(job.metadata.name);
  spec["restartPolicy"] = "Never";  // the operator tries again: it sees why it failed
  spec["activeDeadlineSeconds"] = kRemovalPatience.count();
  spec["terminationGracePeriodSeconds"] = 5;
  spec["containers"] = Json::array({Container(job, spec)});
  return {{"metadata", Metadata(job)}, {"spec", std::move(spec)}};
}

}  // namespace lockstep::reconcile
