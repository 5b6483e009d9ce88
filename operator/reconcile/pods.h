#pragma once
// A worker pod as the decisions need it, and which of a job's pods counts for which slot. Pure.

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
  kSucceeded,  // the trainer container ended with 0, whatever the state of its sidecars
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
  int gpus = 0;      // requested by its containers
  bool ready = false;
  bool disrupted = false;                         // preempted, evicted or drained
  std::map<std::string, std::string> conditions;  // status by type
  std::optional<int> exit_code;                   // of the trainer container
  // runs a program of the user's own: its exit codes other than 0 and 143 are the program's
  bool runs_program = false;
  bool overstepped = false;       // evicted because it exceeded its own storage limits: not a disruption
  std::optional<WallTime> ended;  // of the trainer container
  // The termination message of the worker, or the reason that Kubernetes gives; the last report of a pod that
  // completed the training.
  std::string message;
  std::string waiting_reason;  // of the first container that cannot start, such as ImagePullBackOff
  std::string waiting_message;
  std::string unschedulable;       // the scheduler's message
  std::optional<int32_t> attempt;  // the attempt to which its failure is charged
  std::string template_hash;       // empty: created by a version without template hashes
  std::optional<WallTime> created;
  // Unhealthy devices of its containers, such as "gpu-0 of nvidia.com/gpu", as reported by the device plugin.
  std::set<std::string> unhealthy_devices;

  [[nodiscard]] bool IsActive() const { return phase == PodPhase::kPending || phase == PodPhase::kRunning; }
};

// The fields that PodFromJson reads, which the cache keeps.
[[nodiscard]] const kube::FieldMask& PodFields();
[[nodiscard]] Pod PodFromJson(const Json& json, const std::string& container);

// The key by which the cache finds the pods of a node; "" for a pod without a node.
[[nodiscard]] std::string IndexOfNode(const std::string& node);
[[nodiscard]] std::string IndexByNode(const Json& pod);

struct PodGroups {
  std::map<int32_t, Pod> slots;  // the pod of each wanted slot
  std::vector<Pod> surplus;      // pods of slots beyond the wanted number, and pods without a slot
};

// The order of `pods` does not matter. Names are unique, so a slot has at most one pod.
[[nodiscard]] PodGroups GroupPods(const std::vector<Pod>& pods, int32_t replicas);

}  // namespace lockstep::reconcile
