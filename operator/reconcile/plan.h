#pragma once
// The decision of a whole pass: Observed → what to write, why, and which events to record. Combines the
// policies. Pure: the same input gives the same plan, and carrying out a plan twice is harmless.

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "operator/kube/event_recorder.h"
#include "operator/kube/object.h"
#include "operator/reconcile/gpus.h"
#include "operator/reconcile/observed.h"
#include "runtime/common/rendezvous/round.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::reconcile {

// Adds the finalizer, and the annotation that makes other installations ignore the job.
struct ClaimJob {};
struct RemoveFinalizer {};
// The kind is one of kOwnedKinds, kGangKinds and kWorkloads.
struct ApplyObject {
  kube::Resource resource;
  Json object;
};
struct DeleteObject {
  kube::Resource resource;
  std::string name;
  std::string uid;
};
// For an object that the operator owns while another controller owns its status. Applies to this
// resourceVersion only.
struct PatchStatus {
  kube::Resource resource;
  std::string name;
  std::string resource_version;
  Json status;
};
struct CreatePod {
  Json object;
};
// Charges the pod's failure to the job as this attempt. Applies to this resourceVersion only: a stale cache
// must not charge twice.
struct MarkPod {
  std::string name;
  std::string resource_version;
  int32_t attempt = 0;
};
struct DeletePod {
  std::string name;
  std::string uid;
  std::string resource_version;  // precondition if the pod's own state is the reason
  bool by_force = false;         // without waiting for its node
};
// The pod that removes the checkpoints of a deleted job.
struct StartRemoval {
  Json pod;
};
struct EndRemoval {
  std::string name;
  std::string uid;
};
struct DeleteJob {
  std::string uid;
  std::string resource_version;
};
using Action = std::variant<ClaimJob, ApplyObject, DeleteObject, PatchStatus, MarkPod, DeletePod, CreatePod,
                            StartRemoval, EndRemoval, DeleteJob, RemoveFinalizer>;

struct PlannedAction {
  Action action;
  std::string reason;
};

struct Plan {
  bool ignored = false;                               // the job is not ours: write nothing
  std::vector<rendezvous::PodEnd> lost;               // reported to the rendezvous first
  std::vector<PlannedAction> actions;                 // carried out in this order
  std::optional<rendezvous::JobSettings> rendezvous;  // absent: drop the job's rounds, unless …
  bool keeps_rendezvous = false;        // … this is true: they continue with their present settings
  api::TrainingJobStatus status;        // written last, and only if it differs
  std::vector<kube::EventNote> events;  // recorded once the status is written
  GpuCount gpus;                        // for metrics
  std::optional<std::chrono::milliseconds> requeue_after;
};

// The most pods that a pass creates, and the most that it deletes. A job of a thousand pods takes ten passes,
// so that it does not occupy one of the few workers while other jobs wait for a single replacement.
inline constexpr std::size_t kPodsPerPass = 100;

[[nodiscard]] Plan MakePlan(const Observed& observed);

}  // namespace lockstep::reconcile
