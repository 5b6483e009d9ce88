#pragma once
// The conditions of a job (metav1.Condition) and its state, one word derived from them. Pure; time is a
// parameter.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::api {

namespace condition {
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kQuotaReserved = "QuotaReserved";  // its queue lets the job run
inline constexpr std::string_view kScheduled = "Scheduled";          // every wanted pod has a node
inline constexpr std::string_view kInitialized = "Initialized";      // a first round has closed
inline constexpr std::string_view kProgressing = "Progressing";      // steps are being completed
inline constexpr std::string_view kDegraded =
    "Degraded";  // fewer replicas train than requested, or they are impaired
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kUpdated = "Updated";  // all pods have the newest template
inline constexpr std::string_view kStalled = "Stalled";  // waits for something that a person must correct
// False while a deleted job waits for its checkpoints to be removed (checkpoint.deleteWithJob).
inline constexpr std::string_view kCheckpointsRemoved = "CheckpointsRemoved";
inline constexpr std::string_view kComplete = "Complete";  // terminal
inline constexpr std::string_view kFailed = "Failed";      // terminal
// Standard conditions for tools that do not know the others (kstatus of sigs.k8s.io/cli-utils: Flux, kpt).
// Stalled is a standard condition, too.
inline constexpr std::string_view kReady = "Ready";              // trains or has completed
inline constexpr std::string_view kReconciling = "Reconciling";  // will become ready by itself
}  // namespace condition

namespace reason {
// Failed
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
inline constexpr std::string_view kUserError = "UserError";  // in training code or data
inline constexpr std::string_view kBadConfiguration = "BadConfiguration";
inline constexpr std::string_view kObjectStore = "ObjectStoreUnavailable";
inline constexpr std::string_view kMaxRestarts = "MaxRestartsExceeded";
inline constexpr std::string_view kDeadlineExceeded = "DeadlineExceeded";
inline constexpr std::string_view kStartupDeadlineExceeded = "StartupDeadlineExceeded";
inline constexpr std::string_view kFailurePolicy = "FailurePolicy";
// Stalled, Scheduled=False
// the definition and the operator are of different versions
inline constexpr std::string_view kVersionMismatch = "VersionMismatch";
inline constexpr std::string_view kSecretMissing = "SecretMissing";
inline constexpr std::string_view kUnschedulable = "Unschedulable";
inline constexpr std::string_view kGangUnavailable = "GangUnavailable";
inline constexpr std::string_view kImagePull = "ImagePullFailed";
inline constexpr std::string_view kContainerConfig = "ContainerConfigError";
inline constexpr std::string_view kPodRejected = "PodRejected";  // quota, admission, or an invalid template
// others
inline constexpr std::string_view kSuspendRequested = "SuspendRequested";
inline constexpr std::string_view kQueued = "Queued";
inline constexpr std::string_view kEvicted = "Evicted";
inline constexpr std::string_view kQueueUnavailable = "QueueUnavailable";
inline constexpr std::string_view kAdmitted = "Admitted";
inline constexpr std::string_view kResumed = "Resumed";
inline constexpr std::string_view kPodsStarting = "PodsStarting";
inline constexpr std::string_view kPodsScheduled = "PodsScheduled";
inline constexpr std::string_view kRendezvous = "Rendezvous";  // waiting for members
inline constexpr std::string_view kRoundFormed = "RoundFormed";
inline constexpr std::string_view kTraining = "Training";
inline constexpr std::string_view kReplicasMissing = "ReplicasMissing";
inline constexpr std::string_view kStraggler = "Straggler";
inline constexpr std::string_view kStoreUnavailable = "StoreUnavailable";  // temporarily
inline constexpr std::string_view kCheckpointFailed = "CheckpointFailed";
inline constexpr std::string_view kShrunk = "Shrunk";  // as long as no node has room
inline constexpr std::string_view kAllReplicasIn = "AllReplicasIn";
inline constexpr std::string_view kTemplateChanged = "TemplateChanged";
inline constexpr std::string_view kPodsReplaced = "PodsReplaced";
inline constexpr std::string_view kReplicaFailed = "ReplicaFailed";
inline constexpr std::string_view kRecovered = "Recovered";
inline constexpr std::string_view kTrainingDone = "TrainingDone";
inline constexpr std::string_view kJobFinished = "JobFinished";
inline constexpr std::string_view kRemoving = "Removing";
}  // namespace reason

struct ConditionChange {
  std::string_view type;
  ConditionStatus status = ConditionStatus::kUnknown;
  std::string_view reason;
  std::string message;
};

// Adds or updates one condition; lastTransitionTime changes only with the status. A terminal condition that
// is True is not changed. The message is truncated to the limit of the API. Returns whether anything changed.
bool SetCondition(std::vector<Condition>& conditions, const ConditionChange& change, int64_t generation,
                  WallTime now);

[[nodiscard]] const Condition* FindCondition(const std::vector<Condition>& conditions, std::string_view type);
[[nodiscard]] bool IsTrue(const std::vector<Condition>& conditions, std::string_view type);
[[nodiscard]] bool IsFinished(const std::vector<Condition>& conditions);  // Complete or Failed

// The first of Complete, Failed, Suspended, Stalled, Restarting, Running, Starting, Pending and Created that
// applies.
[[nodiscard]] std::string_view StateOf(const std::vector<Condition>& conditions);

}  // namespace lockstep::api
