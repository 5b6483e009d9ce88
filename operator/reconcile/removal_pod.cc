#include "operator/reconcile/removal_pod.h"

#include <utility>

#include "operator/reconcile/desired_pod.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/program_of.h"

namespace lockstep::reconcile {
namespace {

// A list of fields to keep, because devices, probes, ports, init containers and scheduling gates are for
// training only.
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

// With the labels and annotations of a queue the pod would wait for quota.
Json WithoutKueue(const Json* texts) {
  Json kept = Json::object();
  if (texts == nullptr) return kept;
  for (const auto& [key, value] : texts->items()) {
    if (!key.starts_with("kueue.x-k8s.io/")) kept[key] = value;
  }
  return kept;
}

// Cloud providers and meshes grant access to the store by labels and annotations.
Json Metadata(const api::TrainingJob& job) {
  Json labels = WithoutKueue(FindJson(job.spec.worker.pod_template, {"metadata", "labels"}));
  labels[api::kLabelJob] = job.metadata.name;
  labels[api::kLabelManagedBy] = api::kManagedByValue;
  labels[api::kLabelName] = api::kRemovalNameValue;
  return {{"name", api::RemovalPodName(job.metadata.name, job.metadata.uid)},
          {"namespace", job.metadata.namespace_name},
          {"labels", std::move(labels)},
          {"annotations", WithoutKueue(FindJson(job.spec.worker.pod_template, {"metadata", "annotations"}))}};
}

Json Container(const api::TrainingJob& job, const Json& pod_spec) {
  const Json* trainer = api::FindTrainer(job.spec.worker);
  Json container = trainer != nullptr ? Keep(*trainer, kOfContainer) : Json::object();
  Restrict(container, pod_spec);
  if (job.spec.checkpoint && job.spec.checkpoint->secret_ref)
    ListIn(container, "envFrom")
        .push_back({{"secretRef", {{"name", job.spec.checkpoint->secret_ref->name}}}});
  container["command"] = RemovalCommand(job);
  // A namespace quota may require both.
  container["resources"] = {{"requests", {{"cpu", "100m"}, {"memory", "128Mi"}}},
                            {"limits", {{"cpu", "1"}, {"memory", "1Gi"}}}};
  container["terminationMessagePolicy"] = "FallbackToLogsOnError";
  return container;
}

}  // namespace

// With --force: the operator knows that no worker is left, although the marker may be less than a minute old.
std::vector<std::string> RemovalCommand(const api::TrainingJob& job) {
  const std::string uri = job.spec.checkpoint ? job.spec.checkpoint->uri : "";
  return {"lockstep", "checkpoint", "rm", uri, "--all-of-job", job.metadata.uid, "--force"};
}

Json DesiredRemovalPod(const api::TrainingJob& job, bool has_account) {
  const Json* given = FindJson(job.spec.worker.pod_template, {"spec"});
  Json spec = given != nullptr ? Keep(*given, kOfPod) : Json::object();
  // A volume may be bound to some nodes. The affinity between pods of the job is not needed here.
  if (const Json* of_nodes = given != nullptr ? FindJson(*given, {"affinity", "nodeAffinity"}) : nullptr)
    spec["affinity"]["nodeAffinity"] = *of_nodes;
  SetDefault(spec, "automountServiceAccountToken", false);
  SetDefault(spec, "enableServiceLinks", false);
  if (has_account) spec["serviceAccountName"] = api::ServiceAccountName(job.metadata.name);
  spec["restartPolicy"] = "Never";  // the operator retries, because it then sees why the pod failed
  spec["activeDeadlineSeconds"] = kRemovalPatience.count();
  spec["terminationGracePeriodSeconds"] = 5;
  spec["containers"] = Json::array({Container(job, spec)});
  return {{"metadata", Metadata(job)}, {"spec", std::move(spec)}};
}

}  // namespace lockstep::reconcile
