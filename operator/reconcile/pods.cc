#include "operator/reconcile/pods.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "runtime/common/api/container_resources.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/time_text.h"

namespace lockstep::reconcile {
namespace {

const Json& ListAt(const Json& json, std::initializer_list<std::string_view> keys) {
  static const Json none = Json::array();
  const Json* found = FindJson(json, keys);
  return found != nullptr && found->is_array() ? *found : none;
}

std::map<std::string, std::string> TextMapAt(const Json& json, std::initializer_list<std::string_view> keys) {
  std::map<std::string, std::string> texts;
  const Json* found = FindJson(json, keys);
  if (found == nullptr || !found->is_object()) return texts;
  for (const auto& [key, value] : found->items()) {
    if (value.is_string()) texts[key] = value.get<std::string>();
  }
  return texts;
}

std::optional<int32_t> AttemptOf(const Json& json) {
  const std::string text = StringAt(json, {"metadata", "annotations", api::kAnnotationAttempt});
  int32_t attempt = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), attempt);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return attempt;
}

void ReadConditions(const Json& json, Pod& pod) {
  for (const Json& condition : ListAt(json, {"status", "conditions"})) {
    const std::string type = StringAt(condition, {"type"});
    pod.conditions[type] = StringAt(condition, {"status"});
    const bool is_true = pod.conditions[type] == "True";
    if (type == "Ready") pod.ready = is_true;
    if (type == "DisruptionTarget") pod.disrupted = is_true;
    if (type == "PodScheduled" && !is_true && StringAt(condition, {"reason"}) == "Unschedulable") {
      pod.unschedulable = StringAt(condition, {"message"}, "no node fits");
    }
  }
}

// Values of status.reason that the kubelet and the scheduler write when they end a pod themselves. Without
// "Evicted": if a node lacks resources, the kubelet also sets the condition DisruptionTarget. Without that
// condition the pod exceeded the limit of an emptyDir or of its own ephemeral storage.
bool IsDisruption(const std::string& reason) {
  static constexpr std::array<std::string_view, 5> kReasons = {"Preempting", "Shutdown", "NodeShutdown",
                                                               "NodeLost", "Terminated"};
  return std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end();
}

// ContainerCreating and PodInitializing are temporary.
bool IsStuck(const std::string& reason) {
  static constexpr std::array<std::string_view, 7> kReasons = {
      "CreateContainerConfigError", "CreateContainerError", "ErrImagePull",     "ImagePullBackOff",
      "InvalidImageName",           "ErrImageNeverPull",    "RunContainerError"};
  return std::find(kReasons.begin(), kReasons.end(), reason) != kReasons.end();
}

// Empty in a cluster whose kubelets do not report it (feature gate ResourceHealthStatus).
void ReadDevices(const Json& json, Pod& pod) {
  for (const Json& container : ListAt(json, {"status", "containerStatuses"})) {
    for (const Json& resource : ListAt(container, {"allocatedResourcesStatus"})) {
      for (const Json& device : ListAt(resource, {"resources"})) {
        if (StringAt(device, {"health"}) != "Unhealthy") continue;
        pod.unhealthy_devices.insert(StringAt(device, {"resourceID"}) + " of " +
                                     StringAt(resource, {"name"}));
      }
    }
  }
}

void ReadContainers(const Json& json, const std::string& container, Pod& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& status : ListAt(json, {"status", list})) {
      if (StringAt(status, {"name"}) == api::kLauncherContainer) pod.runs_program = true;
      const std::string waiting = StringAt(status, {"state", "waiting", "reason"});
      if (pod.waiting_reason.empty() && IsStuck(waiting)) {
        pod.waiting_reason = waiting;
        pod.waiting_message = StringAt(status, {"state", "waiting", "message"}, waiting);
      }
      const Json* ended = FindJson(status, {"state", "terminated"});
      if (ended == nullptr || StringAt(status, {"name"}) != container) continue;
      pod.exit_code = static_cast<int>(IntAt(*ended, {"exitCode"}));
      if (const auto time = ParseTime(StringAt(*ended, {"finishedAt"})); time.ok()) pod.ended = *time;
      pod.message = StringAt(*ended, {"message"});
      const std::string reason = StringAt(*ended, {"reason"});
      if (pod.message.empty() && reason != "Error" && reason != "Completed")
        pod.message = reason;  // for example OOMKilled
    }
  }
}

PodPhase PhaseOf(const Json& json, const Pod& pod) {
  if (pod.exit_code) return *pod.exit_code == 0 ? PodPhase::kSucceeded : PodPhase::kFailed;
  const std::string phase = StringAt(json, {"status", "phase"}, "Pending");
  if (phase == "Succeeded") return PodPhase::kSucceeded;
  if (phase == "Failed") return PodPhase::kFailed;
  return phase == "Pending" ? PodPhase::kPending : PodPhase::kRunning;
}

}  // namespace

const kube::FieldMask& PodFields() {
  static const kube::FieldMask mask{
      {"metadata", "name"},
      {"metadata", "namespace"},
      {"metadata", "uid"},
      {"metadata", "resourceVersion"},
      {"metadata", "creationTimestamp"},
      {"metadata", "deletionTimestamp"},
      {"metadata", "deletionGracePeriodSeconds"},
      {"metadata", "ownerReferences", "*", "apiVersion"},
      {"metadata", "ownerReferences", "*", "kind"},
      {"metadata", "ownerReferences", "*", "name"},
      {"metadata", "ownerReferences", "*", "uid"},
      {"metadata", "ownerReferences", "*", "controller"},
      {"metadata", "labels", std::string(api::kLabelJob)},
      {"metadata", "labels", std::string(api::kLabelSlot)},
      {"metadata", "annotations", std::string(api::kAnnotationAttempt)},
      {"metadata", "annotations", std::string(api::kAnnotationTemplate)},
      {"spec", "nodeName"},
      {"spec", "containers", "*", "resources", "limits"},
      {"status", "phase"},
      {"status", "reason"},
      {"status", "message"},
      {"status", "conditions", "*", "type"},
      {"status", "conditions", "*", "status"},
      {"status", "conditions", "*", "reason"},
      {"status", "conditions", "*", "message"},
      {"status", "initContainerStatuses", "*", "name"},
      {"status", "initContainerStatuses", "*", "state"},
      {"status", "containerStatuses", "*", "name"},
      {"status", "containerStatuses", "*", "state"},
      {"status", "containerStatuses", "*", "allocatedResourcesStatus"},
  };
  return mask;
}

Pod PodFromJson(const Json& json, const std::string& container) {
  Pod pod;
  pod.name = StringAt(json, {"metadata", "name"});
  pod.uid = StringAt(json, {"metadata", "uid"});
  pod.resource_version = StringAt(json, {"metadata", "resourceVersion"});
  pod.slot = api::SlotFromLabels(TextMapAt(json, {"metadata", "labels"}));
  pod.deleting = FindJson(json, {"metadata", "deletionTimestamp"}) != nullptr;
  if (const auto deletion = ParseTime(StringAt(json, {"metadata", "deletionTimestamp"})); deletion.ok()) {
    // The timestamp is in the future by the grace period.
    pod.deletion_requested =
        *deletion - std::chrono::seconds(IntAt(json, {"metadata", "deletionGracePeriodSeconds"}));
  }
  pod.node = StringAt(json, {"spec", "nodeName"});
  pod.gpus = api::GpusOfPod(json);
  pod.attempt = AttemptOf(json);
  pod.template_hash = StringAt(json, {"metadata", "annotations", api::kAnnotationTemplate});
  if (const auto created = ParseTime(StringAt(json, {"metadata", "creationTimestamp"})); created.ok()) {
    pod.created = *created;
  }
  ReadConditions(json, pod);
  ReadContainers(json, container, pod);
  ReadDevices(json, pod);
  const std::string reason = StringAt(json, {"status", "reason"});
  pod.disrupted = pod.disrupted || IsDisruption(reason);
  pod.overstepped = reason == "Evicted" && !pod.disrupted;
  if (pod.overstepped || pod.message.empty()) pod.message = StringAt(json, {"status", "message"}, reason);
  pod.phase = PhaseOf(json, pod);
  return pod;
}

std::string IndexOfNode(const std::string& node) { return "node " + node; }

std::string IndexByNode(const Json& pod) {
  const std::string node = StringAt(pod, {"spec", "nodeName"});
  return node.empty() ? "" : IndexOfNode(node);
}

PodGroups GroupPods(const std::vector<Pod>& pods, int32_t replicas) {
  PodGroups groups;
  for (const Pod& pod : pods) {
    if (pod.slot && *pod.slot < replicas && !groups.slots.contains(*pod.slot)) {
      groups.slots.emplace(*pod.slot, pod);
    } else {
      groups.surplus.push_back(pod);
    }
  }
  std::sort(groups.surplus.begin(), groups.surplus.end(),
            [](const Pod& a, const Pod& b) { return a.name > b.name; });
  return groups;
}

}  // namespace lockstep::reconcile
