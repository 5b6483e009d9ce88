#include "operator/reconcile/desired_pod.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "operator/reconcile/avoided_nodes.h"
#include "operator/reconcile/desired.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/placement.h"
#include "operator/reconcile/rollout.h"
#include "runtime/common/api/names.h"
#include "runtime/common/protocol/environment.h"

namespace lockstep::reconcile {
namespace {

namespace env = protocol::env;

constexpr const char* kConfigVolume = "lockstep-config";
constexpr const char* kConfigFolder = "/etc/lockstep";
constexpr const char* kCacheVolume = "lockstep-data";
constexpr const char* kSharedMemoryVolume = "lockstep-shm";
constexpr std::string_view kSharedMemoryFolder = "/dev/shm";
constexpr const char* kTokenVolume = "lockstep-token";
constexpr const char* kTokenFolder = "/var/run/secrets/lockstep";
constexpr const char* kTokenAudience = "lockstep";
constexpr int kTokenSeconds = 3600;

Json Variable(const char* name, std::string value) { return {{"name", name}, {"value", std::move(value)}}; }

Json FromField(const char* name, const char* path) {
  return {{"name", name}, {"valueFrom", {{"fieldRef", {{"fieldPath", path}}}}}};
}

// Ours first, so that the user's variables may refer to them.
void AddEnvironment(Json& trainer, int32_t slot) {
  Json variables = {Variable(env::kConfig, std::string(kConfigFolder) + "/" + kConfigKey),
                    Variable(env::kTokenFile, std::string(kTokenFolder) + "/token"),
                    FromField(env::kPodName, "metadata.name"),
                    FromField(env::kPodUid, "metadata.uid"),
                    FromField(env::kPodIp, "status.podIP"),
                    FromField(env::kNodeName, "spec.nodeName"),
                    Variable(env::kSlot, std::to_string(slot))};
  const std::string log = StringAt(trainer, {"terminationMessagePath"});
  if (!log.empty()) variables.push_back(Variable(env::kTerminationLog, log));
  for (Json& variable : ListIn(trainer, "env")) variables.push_back(std::move(variable));
  trainer["env"] = std::move(variables);
}

void AddCredentials(Json& trainer, const api::TrainingJobSpec& spec) {
  if (spec.checkpoint && spec.checkpoint->secret_ref) {
    ListIn(trainer, "envFrom").push_back({{"secretRef", {{"name", spec.checkpoint->secret_ref->name}}}});
  }
  if (spec.training && spec.training->data.secret_ref) {
    ListIn(trainer, "envFrom")
        .push_back({{"prefix", api::kDataVariablePrefix},
                    {"secretRef", {{"name", spec.training->data.secret_ref->name}}}});
  }
}

bool NeedsCacheVolume(const api::TrainingJobSpec& spec) {
  return spec.training && api::IsRemote(spec.training->data) && spec.training->data.cache.empty();
}

void CompleteTrainer(Json& trainer, const api::TrainingJobSpec& spec, int32_t slot) {
  AddEnvironment(trainer, slot);
  AddCredentials(trainer, spec);
  Json& mounts = ListIn(trainer, "volumeMounts");
  if (NeedsCacheVolume(spec))
    mounts.push_back({{"name", kCacheVolume}, {"mountPath", api::kDataCacheFolder}});
  mounts.push_back({{"name", kConfigVolume}, {"mountPath", kConfigFolder}, {"readOnly", true}});
  mounts.push_back({{"name", kTokenVolume}, {"mountPath", kTokenFolder}, {"readOnly", true}});
  // A program of the user's own writes no termination message: its last log lines replace it.
  SetDefault(trainer, "terminationMessagePolicy", "FallbackToLogsOnError");
}

bool HasSharedMemory(const Json& pod_spec, const Json& trainer) {
  const Json* of_the_node = FindJson(pod_spec, {"hostIPC"});
  if (of_the_node != nullptr && *of_the_node == true) return true;
  const Json* mounts = FindJson(trainer, {"volumeMounts"});
  return mounts != nullptr && std::any_of(mounts->begin(), mounts->end(), [](const Json& mount) {
           std::string path = StringAt(mount, {"mountPath"});
           while (path.ends_with('/')) path.pop_back();
           return path == kSharedMemoryFolder || path == "/dev";
         });
}

// The container's own has 64 MB: too little for workers of PyTorch's DataLoader, and for NCCL between the GPUs
// of a node. What is written there counts against the memory limit, as with the container's own.
void AddSharedMemory(Json& pod_spec, Json& trainer) {
  if (HasSharedMemory(pod_spec, trainer)) return;
  ListIn(pod_spec, "volumes")
      .push_back({{"name", kSharedMemoryVolume}, {"emptyDir", {{"medium", "Memory"}}}});
  ListIn(trainer, "volumeMounts")
      .push_back({{"name", kSharedMemoryVolume}, {"mountPath", kSharedMemoryFolder}});
}

// Workers on one node would conflict on the metrics' port, so the scheduler must know it. The API server
// turns listed ports into host ports by itself.
void UseHostNetwork(Json& pod_spec, Json& trainer, int64_t metrics_port) {
  pod_spec["hostNetwork"] = true;
  // otherwise the name of the rendezvous does not resolve
  SetDefault(pod_spec, "dnsPolicy", "ClusterFirstWithHostNet");
  Json& ports = ListIn(trainer, "ports");
  const bool is_listed = std::any_of(ports.begin(), ports.end(), [&](const Json& port) {
    return port.value("containerPort", int64_t{0}) == metrics_port;
  });
  if (!is_listed) ports.push_back({{"containerPort", metrics_port}, {"hostPort", metrics_port}});
}

void AddVolumes(Json& pod_spec, const api::TrainingJobSpec& spec, const std::string& job) {
  Json& volumes = ListIn(pod_spec, "volumes");
  if (NeedsCacheVolume(spec)) volumes.push_back({{"name", kCacheVolume}, {"emptyDir", Json::object()}});
  volumes.push_back({{"name", kConfigVolume}, {"configMap", {{"name", api::ConfigMapName(job)}}}});
  const Json token = {
      {"serviceAccountToken",
       {{"audience", kTokenAudience}, {"expirationSeconds", kTokenSeconds}, {"path", "token"}}}};
  volumes.push_back({{"name", kTokenVolume}, {"projected", {{"sources", Json::array({token})}}}});
}

void CompleteSpec(Json& pod_spec, const api::TrainingJob& job, int32_t slot) {
  const api::TrainingJobSpec& spec = job.spec;
  pod_spec["restartPolicy"] = "Never";
  pod_spec["hostname"] = api::PodName(job.metadata.name, slot);
  pod_spec["subdomain"] = api::ServiceName(job.metadata.name);
  // The worker needs only the token for the rendezvous, which a separate volume provides.
  SetDefault(pod_spec, "automountServiceAccountToken", false);
  if (HasOwnAccount(job)) pod_spec["serviceAccountName"] = api::ServiceAccountName(job.metadata.name);
  SetDefault(pod_spec, "enableServiceLinks", false);
  if (spec.checkpoint) pod_spec["terminationGracePeriodSeconds"] = spec.checkpoint->grace_period_seconds;
  const std::string& priority = spec.scheduling_policy.priority_class_name;
  if (!priority.empty()) pod_spec["priorityClassName"] = priority;
  KeepTogether(pod_spec, job);
  AddVolumes(pod_spec, spec, job.metadata.name);
  for (Json& container : ListIn(pod_spec, "containers")) {
    if (StringAt(container, {"name"}) != spec.worker.container_name) continue;
    // A program of the user's own is not restricted: many images run as root.
    if (spec.training) Restrict(container, pod_spec);
    CompleteTrainer(container, spec, slot);
    AddSharedMemory(pod_spec, container);
    if (spec.network && spec.network->host_network)
      UseHostNetwork(pod_spec, container, spec.observability.metrics_port);
  }
}

Json Metadata(const api::TrainingJob& job, int32_t slot) {
  const Json* labels = FindJson(job.spec.worker.pod_template, {"metadata", "labels"});
  const Json* annotations = FindJson(job.spec.worker.pod_template, {"metadata", "annotations"});
  Json metadata = OwnedMetadata(job, api::PodName(job.metadata.name, slot));
  metadata["labels"] = labels != nullptr ? *labels : Json::object();
  for (const auto& [key, value] : api::WorkerLabels(job.metadata.name, slot)) metadata["labels"][key] = value;
  Json& notes = metadata["annotations"];
  notes = annotations != nullptr ? *annotations : Json::object();
  notes[api::kAnnotationTemplate] = TemplateHash(job.spec);
  SetDefault(notes, "prometheus.io/scrape", "true");
  SetDefault(notes, "prometheus.io/port", std::to_string(job.spec.observability.metrics_port));
  SetDefault(notes, "prometheus.io/path", "/metrics");
  return metadata;
}

}  // namespace

Json& ListIn(Json& object, const char* key) {
  Json& list = object[key];
  if (!list.is_array()) list = Json::array();
  return list;
}

void SetDefault(Json& object, const char* key, Json value) {
  if (!object.contains(key)) object[key] = std::move(value);
}

void Restrict(Json& container, const Json& pod_spec) {
  if (container.contains("securityContext")) return;
  const auto pod_says = [&](const char* key) {
    return FindJson(pod_spec, {"securityContext", key}) != nullptr;
  };
  Json& context = container["securityContext"];
  context = {{"allowPrivilegeEscalation", false}, {"capabilities", {{"drop", {"ALL"}}}}};
  if (!pod_says("runAsNonRoot") && !pod_says("runAsUser")) context["runAsNonRoot"] = true;
  if (!pod_says("seccompProfile")) context["seccompProfile"] = {{"type", "RuntimeDefault"}};
}

Json DesiredPod(const api::TrainingJob& job, int32_t slot, const std::vector<std::string>& avoided) {
  const Json* spec = FindJson(job.spec.worker.pod_template, {"spec"});
  Json pod = {{"metadata", Metadata(job, slot)}, {"spec", spec != nullptr ? *spec : Json::object()}};
  CompleteSpec(pod["spec"], job, slot);
  PreferOtherNodes(pod["spec"], avoided);
  return pod;
}

}  // namespace lockstep::reconcile
