#pragma once
// The objects that every job has in addition to its pods: the Service that gives pods their names, and the
// ConfigMap with their configuration. Complete except for apiVersion and kind, which the client adds. Pure.

#include <string>

#include "operator/reconcile/observed.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::reconcile {

inline constexpr const char* kConfigKey = "config.json";
inline constexpr const char* kCaKey = "ca.crt";

[[nodiscard]] Json DesiredService(const api::TrainingJob& job);
[[nodiscard]] Json DesiredConfigMap(const api::TrainingJob& job, const ClusterSettings& settings);
[[nodiscard]] protocol::WorkerConfig DesiredWorkerConfig(const api::TrainingJob& job,
                                                         const ClusterSettings& settings);

// Namespace, name, labels and owner reference of an object that belongs to the job.
[[nodiscard]] Json OwnedMetadata(const api::TrainingJob& job, const std::string& name);

// True if `actual` has every field of `desired`. Additional fields, such as those that the API server sets,
// do not matter.
[[nodiscard]] bool Covers(const Json& actual, const Json& desired);

}  // namespace lockstep::reconcile
