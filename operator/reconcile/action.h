#pragma once
// What a pass may write. The type of an action has its stage, and its name for the log.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "operator/kube/object.h"
#include "runtime/common/base/json.h"

namespace lockstep::reconcile {

// A plan has its actions in the order of their stages, except that forced deletions and the writes for Kueue
// are last: if one of them fails, everything else has been done. Neighbours of one stage are independent of
// each other and carried out at the same time; the next action waits until all of them have succeeded.
enum class Stage {
  kClaim,         // so that nothing is written for a job of another installation
  kObjects,       // pods use them
  kAttempts,      // a failure is charged before its pod, which shows it, is deleted
  kPodDeletions,  // a new pod may need the place of an old one
  kPodCreations,
  kRemoval,
  kEnd,  // nothing that belongs to the job may be left
};

// Adds the finalizer, and the annotation that makes other installations ignore the job.
struct ClaimJob {
  static constexpr Stage kStage = Stage::kClaim;
  static constexpr std::string_view kName = "claim job";
};
// The kind is one of kOwnedKinds, kGangKinds and kWorkloads.
struct ApplyObject {
  static constexpr Stage kStage = Stage::kObjects;
  static constexpr std::string_view kName = "apply object";
  kube::Resource resource;
  Json object;
};
struct DeleteObject {
  static constexpr Stage kStage = Stage::kObjects;
  static constexpr std::string_view kName = "delete object";
  kube::Resource resource;
  std::string name;
  std::string uid;
};
// For an object that the operator owns while another controller owns its status. Applies to this
// resourceVersion only.
struct PatchStatus {
  static constexpr Stage kStage = Stage::kObjects;
  static constexpr std::string_view kName = "patch status";
  kube::Resource resource;
  std::string name;
  std::string resource_version;
  Json status;
};
// Charges the pod's failure to the job as this attempt. Applies to this resourceVersion only: a stale cache
// must not charge twice.
struct MarkPod {
  static constexpr Stage kStage = Stage::kAttempts;
  static constexpr std::string_view kName = "mark pod";
  std::string name;
  std::string resource_version;
  int32_t attempt = 0;
};
struct DeletePod {
  static constexpr Stage kStage = Stage::kPodDeletions;
  static constexpr std::string_view kName = "delete pod";
  std::string name;
  std::string uid;
  std::string resource_version;  // precondition if the pod's own state is the reason
  bool by_force = false;         // without waiting for its node
};
struct CreatePod {
  static constexpr Stage kStage = Stage::kPodCreations;
  static constexpr std::string_view kName = "create pod";
  Json object;
};
// The pod that removes the checkpoints of a deleted job.
struct StartRemoval {
  static constexpr Stage kStage = Stage::kRemoval;
  static constexpr std::string_view kName = "start removal";
  Json pod;
};
struct EndRemoval {
  static constexpr Stage kStage = Stage::kRemoval;
  static constexpr std::string_view kName = "end removal";
  std::string name;
  std::string uid;
};
struct DeleteJob {
  static constexpr Stage kStage = Stage::kEnd;
  static constexpr std::string_view kName = "delete job";
  std::string uid;
  std::string resource_version;
};
struct RemoveFinalizer {
  static constexpr Stage kStage = Stage::kEnd;
  static constexpr std::string_view kName = "remove finalizer";
};

// The order of the alternatives means nothing.
using Action = std::variant<ClaimJob, ApplyObject, DeleteObject, PatchStatus, MarkPod, DeletePod, CreatePod,
                            StartRemoval, EndRemoval, DeleteJob, RemoveFinalizer>;

[[nodiscard]] inline Stage StageOf(const Action& action) {
  return std::visit([]<typename Kind>(const Kind&) { return Kind::kStage; }, action);
}
[[nodiscard]] inline std::string_view NameOf(const Action& action) {
  return std::visit([]<typename Kind>(const Kind&) { return Kind::kName; }, action);
}

struct PlannedAction {
  Action action;
  std::string reason;
};

// The most pods that a pass creates, and the most that it deletes. A job of a thousand pods takes ten passes,
// so that it does not occupy one of the few workers while other jobs wait for a single replacement.
inline constexpr std::size_t kPodsPerPass = 100;

}  // namespace lockstep::reconcile
