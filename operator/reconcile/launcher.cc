#include "operator/reconcile/launcher.h"

#include <utility>

#include "operator/reconcile/desired_pod.h"
#include "runtime/common/api/names.h"

namespace lockstep::reconcile {
namespace {

constexpr const char* kVolume = "lockstep-launcher";
constexpr const char* kFolder = "/opt/lockstep";

// The trainer's requests and limits without devices, so that neither the pod's requests nor its quality of
// service change.
Json ResourcesLike(const Json& trainer) {
  Json resources = Json::object();
  for (const char* kind : {"requests", "limits"}) {
    for (const char* name : {"cpu", "memory"}) {
      if (const Json* quantity = FindJson(trainer, {"resources", kind, name}))
        resources[kind][name] = *quantity;
    }
  }
  return resources;
}

// Runs as the pod's user, else as that of its image, and complies with the Pod Security Standard "restricted"
// unless the pod itself asks for root.
Json InitContainer(const ClusterSettings& settings, const Json& pod_spec, const Json& trainer) {
  const bool is_root = IntAt(pod_spec, {"securityContext", "runAsUser"}, -1) == 0;
  Json container = {{"name", api::kLauncherContainer},
                    {"image", settings.launcher_image},
                    {"command", {"/usr/local/bin/lockstep", "copy-to", kFolder}},
                    {"resources", ResourcesLike(trainer)},
                    {"securityContext",
                     {{"allowPrivilegeEscalation", false},
                      {"capabilities", {{"drop", {"ALL"}}}},
                      {"readOnlyRootFilesystem", true},
                      {"runAsNonRoot", !is_root},
                      {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                    {"volumeMounts", Json::array({{{"name", kVolume}, {"mountPath", kFolder}}})}};
  if (!settings.launcher_pull_policy.empty()) container["imagePullPolicy"] = settings.launcher_pull_policy;
  return container;
}

// The user's command stays in the container's arguments, so that the kubelet still expands variables in it.
void Wrap(Json& trainer) {
  const std::string folder(kFolder);
  Json words = std::move(ListIn(trainer, "command"));
  for (Json& word : ListIn(trainer, "args")) words.push_back(std::move(word));
  trainer["command"] = {folder + "/ld.so", "--library-path", folder, folder + "/lockstep", "worker", "--"};
  trainer["args"] = std::move(words);
  ListIn(trainer, "volumeMounts").push_back({{"name", kVolume}, {"mountPath", kFolder}, {"readOnly", true}});
}

}  // namespace

void AddLauncher(Json& pod, const api::TrainingJob& job, const ClusterSettings& settings) {
  if (job.spec.training) return;
  Json& spec = pod["spec"];
  for (Json& container : ListIn(spec, "containers")) {
    if (StringAt(container, {"name"}) != job.spec.worker.container_name) continue;
    Json& init = ListIn(spec, "initContainers");
    init.insert(init.begin(), InitContainer(settings, spec, container));
    Wrap(container);
  }
  ListIn(spec, "volumes").push_back({{"name", kVolume}, {"emptyDir", Json::object()}});
}

}  // namespace lockstep::reconcile
