#pragma once
// What should exist beside the pods: the Service that gives them names, and the ConfigMap with their
// configuration. Complete but for apiVersion and kind, which the client adds. Pure.

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

// namespace, name, labels and the owner reference of an object that belongs to the job.
[[nodiscard]] Json OwnedMetadata(const api::TrainingJob& job, const std::string& name);

// True where `actual` has every field of `desired`, whatever else it has: what the API server fills in does
// not count.
[[nodiscard]] bool Covers(const Json& actual, const Json& desired);

}  // namespace lockstep::reconcile
