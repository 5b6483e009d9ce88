#pragma once
// Conditions of a job as metav1 wants them, and the one-word state that people read. Pure; time is a
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
inline constexpr std::string_view kProgressing = "Progressing";      // steps are being made
inline constexpr std::string_view kDegraded =
    "Degraded";  // fewer replicas train than asked for, or not as they should
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kUpdated = "Updated";  // pods are of the newest template
inline constexpr std::string_view kStalled = "Stalled";  // waits for something that people must mend
// False while a deleted job waits for its checkpoints to be removed (checkpoint.deleteWithJob).
inline constexpr std::string_view kCheckpointsRemoved = "CheckpointsRemoved";
inline constexpr std::string_view kComplete = "Complete";  // terminal
inline constexpr std::string_view kFailed = "Failed";      // terminal
// For programs that know no other conditions (kstatus of sigs.k8s.io/cli-utils: Flux, kpt); Stalled is one,
// too.
inline constexpr std::string_view kReady = "Ready";              // trains, or has
inline constexpr std::string_view kReconciling = "Reconciling";  // is on its way there by itself
}  // namespace condition

namespace reason {
// Failed
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
inline constexpr std::string_view kUserError = "UserError";  // training or data
inline constexpr std::string_view kBadConfiguration = "BadConfiguration";
inline constexpr std::string_view kObjectStore = "ObjectStoreUnavailable";
inline constexpr std::string_view kMaxRestarts = "MaxRestartsExceeded";
inline constexpr std::string_view kDeadlineExceeded = "DeadlineExceeded";
inline constexpr std::string_view kStartupDeadlineExceeded = "StartupDeadlineExceeded";
inline constexpr std::string_view kFailurePolicy = "FailurePolicy";
// Stalled, Scheduled=False
inline constexpr std::string_view kVersionMismatch = "VersionMismatch";  // of the definition and the operator
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
inline constexpr std::string_view kStoreUnavailable = "StoreUnavailable";  // and may come back
inline constexpr std::string_view kShrunk = "Shrunk";                      // for as long as no node has room
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

// Adds or updates one condition; the transition time moves only with the status. A terminal condition that is
// True stays as it is. The message is cut to what the API allows. Returns whether anything changed.
bool SetCondition(std::vector<Condition>& conditions, const ConditionChange& change, int64_t generation,
                  WallTime now);

[[nodiscard]] const Condition* FindCondition(const std::vector<Condition>& conditions, std::string_view type);
[[nodiscard]] bool IsTrue(const std::vector<Condition>& conditions, std::string_view type);
[[nodiscard]] bool IsFinished(const std::vector<Condition>& conditions);  // Complete or Failed

// Complete, Failed, Suspended, Stalled, Restarting, Running, Starting, Pending or Created: the first that
// applies.
[[nodiscard]] std::string_view StateOf(const std::vector<Condition>& conditions);

}  // namespace lockstep::api
