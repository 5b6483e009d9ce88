#pragma once
// Names, labels and annotations of the objects of a job. They depend only on (job, slot), so that creating an
// object twice has the same result as creating it once. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::api {

inline constexpr std::string_view kLabelJob = "lockstep.dev/job";
inline constexpr std::string_view kLabelSlot = "lockstep.dev/slot";
inline constexpr std::string_view kLabelLeader = "lockstep.dev/leader";
inline constexpr std::string_view kLabelManagedBy = "app.kubernetes.io/managed-by";
inline constexpr std::string_view kLabelName = "app.kubernetes.io/name";
inline constexpr std::string_view kManagedByValue = "lockstep";
inline constexpr std::string_view kWorkerNameValue = "lockstep-worker";
inline constexpr std::string_view kRemovalNameValue = "lockstep-removal";

inline constexpr std::string_view kAnnotationAttempt = "lockstep.dev/attempt";
inline constexpr std::string_view kAnnotationTemplate = "lockstep.dev/template-hash";
inline constexpr std::string_view kAnnotationMetrics = "lockstep.dev/metrics-hash";

// On a job, set by users: each new value requests a checkpoint now.
inline constexpr std::string_view kAnnotationSave = "lockstep.dev/save";

// On a job, set by the operator: the installation that runs it, by the namespace and name of its Lease. Other
// installations with the same managedBy and namespaces ignore the job.
inline constexpr std::string_view kAnnotationInstallation = "lockstep.dev/installation";

// The init container that copies the supervisor into the pod of a program of the user's own.
inline constexpr std::string_view kLauncherContainer = "lockstep-launcher";

inline constexpr std::string_view kFinalizer = "lockstep.dev/job";
inline constexpr std::string_view kFieldManager = "lockstep-operator";

// The longest job name: a pod name must be a DNS label and contains "-worker-" and the slot.
inline constexpr std::size_t kMaxJobNameLength = 50;

[[nodiscard]] std::string PodName(std::string_view job, int32_t slot);  // <job>-worker-<slot>
[[nodiscard]] std::string ServiceName(std::string_view job);            // <job>
[[nodiscard]] std::string ConfigMapName(std::string_view job);          // <job>-config
[[nodiscard]] std::string ServiceAccountName(std::string_view job);     // <job>-worker
// The pod that removes the checkpoints of a deleted job: <job>-removal-<uid>. The uid distinguishes it from
// that of an earlier or later job of the same name.
[[nodiscard]] std::string RemovalPodName(std::string_view job, std::string_view uid);

[[nodiscard]] std::map<std::string, std::string> WorkerLabels(std::string_view job, int32_t slot);
// Selects all worker pods of a job: the value of status.selector.
[[nodiscard]] std::string WorkerSelector(std::string_view job);
// The slot in a pod's labels; nullopt if it is not a worker pod.
[[nodiscard]] std::optional<int32_t> SlotFromLabels(const std::map<std::string, std::string>& labels);

}  // namespace lockstep::api
