#pragma once
// The decision of a whole pass: Observed → what to write, why, and what to tell. A short conductor over the
// policies; pure, so the same input gives the same plan, and repeating a plan is harmless.

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

// Adds the finalizer, and the annotation with which other installations leave the job alone.
struct ClaimJob {};
struct RemoveFinalizer {};
// One of kOwnedKinds, kGangKinds or kWorkloads.
struct ApplyObject {
  kube::Resource resource;
  Json object;
};
struct DeleteObject {
  kube::Resource resource;
  std::string name;
  std::string uid;
};
// Of an object that is ours while its status is another's: only this very version of it.
struct PatchStatus {
  kube::Resource resource;
  std::string name;
  std::string resource_version;
  Json status;
};
struct CreatePod {
  Json object;
};
// Its failure is charged to the job as this attempt. Only this very version of the pod: a stale cache must
// not charge twice.
struct MarkPod {
  std::string name;
  std::string resource_version;
  int32_t attempt = 0;
};
struct DeletePod {
  std::string name;
  std::string uid;
  std::string resource_version;  // where its own state is the reason: goes only as it was looked at
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
  bool ignored = false;                               // not our job: touch nothing
  std::vector<rendezvous::PodEnd> lost;               // told to the rendezvous first
  std::vector<PlannedAction> actions;                 // in this order
  std::optional<rendezvous::JobSettings> rendezvous;  // absent: forget the job's rounds, unless …
  bool keeps_rendezvous = false;                      // … they go on by the settings they have
  api::TrainingJobStatus status;                      // written last, where it differs
  std::vector<kube::EventNote> events;                // once the status is written
  GpuCount gpus;                                      // for metrics
  std::optional<std::chrono::milliseconds> requeue_after;
};

// How many pods a pass creates, and how many it deletes, at most. A job of a thousand pods takes ten passes, so
// that it does not hold one of the few workers while other jobs wait for a single replacement.
inline constexpr std::size_t kPodsPerPass = 100;

[[nodiscard]] Plan MakePlan(const Observed& observed);

}  // namespace lockstep::reconcile
