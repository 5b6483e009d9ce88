#pragma once
// A worker pod as the decisions see it, and which of a job's pods counts for which slot. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/kube/slim.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/json.h"

namespace lockstep::reconcile {

enum class PodPhase {
  kPending,  // not started yet
  kRunning,
  kSucceeded,  // the trainer container ended with 0, whatever its sidecars do
  kFailed,
};

struct Pod {
  std::string name;
  std::string uid;
  std::string resource_version;
  std::optional<int32_t> slot;
  PodPhase phase = PodPhase::kPending;
  bool deleting = false;  // has a deletionTimestamp: its worker is saving and leaving
  std::optional<WallTime> deletion_requested;
  std::string node;  // empty: not scheduled yet
  int gpus = 0;      // that its containers ask for
  bool ready = false;
  bool disrupted = false;                         // preempted, evicted or drained: nobody's fault
  std::map<std::string, std::string> conditions;  // status by type
  std::optional<int> exit_code;                   // of the trainer container
  bool runs_program = false;      // of the user's own: but for 0 and 143, its exit codes are not ours
  bool overstepped = false;       // evicted for more storage than its own limits allow: no disruption
  std::optional<WallTime> ended;  // of the trainer container
  // Why it ended, as the worker wrote it or as Kubernetes says; of one that reached the end of the training its
  // last report.
  std::string message;
  std::string waiting_reason;  // of the first container that cannot start: ImagePullBackOff, …
  std::string waiting_message;
  std::string unschedulable;       // the scheduler's message
  std::optional<int32_t> attempt;  // its failure is charged to the job as this attempt
  std::string template_hash;       // empty: made before there was one
  std::optional<WallTime> created;
  // Given to its containers: "gpu-0 of nvidia.com/gpu". The plugin of that resource on the node says so.
  std::set<std::string> unhealthy_devices;

  [[nodiscard]] bool IsActive() const { return phase == PodPhase::kPending || phase == PodPhase::kRunning; }
};

// The fields that PodFromJson reads: what the cache keeps of a pod.
[[nodiscard]] const kube::FieldMask& PodFields();
[[nodiscard]] Pod PodFromJson(const Json& json, const std::string& container);

// By what the cache finds the pods of a node; "" for one that has none yet.
[[nodiscard]] std::string IndexOfNode(const std::string& node);
[[nodiscard]] std::string IndexByNode(const Json& pod);

struct PodGroups {
  std::map<int32_t, Pod> slots;  // the pod of each wanted slot
  std::vector<Pod> surplus;      // slots beyond the wanted number, and pods without one
};

// The order of `pods` does not matter. Names are unique, so a slot has one pod at most.
[[nodiscard]] PodGroups GroupPods(const std::vector<Pod>& pods, int32_t replicas);

}  // namespace lockstep::reconcile
