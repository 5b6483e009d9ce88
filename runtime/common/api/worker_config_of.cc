#include "runtime/common/api/worker_config_of.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep::api {
namespace {

// The trainer container's limit of a resource as a number ("500m" is 0.5); 0 where it has none.
double LimitOf(const WorkerSpec& worker, const std::string& resource) {
  const Json* containers = FindJson(worker.pod_template, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return 0;
  for (const Json& container : *containers) {
    if (StringAt(container, {"name"}) != worker.container_name) continue;
    const Json* limit = FindJson(container, {"resources", "limits", resource});
    if (limit == nullptr) return 0;
    if (limit->is_number()) return limit->get<double>();
    if (!limit->is_string()) return 0;
    const std::string text = limit->get<std::string>();
    const double value = std::strtod(text.c_str(), nullptr);
    return text.ends_with('m') ? value / 1000 : value;
  }
  return 0;
}

}  // namespace

int RanksPerPod(const TrainingJobSpec& spec) {
  const int gpus = static_cast<int>(LimitOf(spec.worker, "nvidia.com/gpu"));
  switch (spec.nproc_per_node.mode) {
    case NprocMode::kCount: return spec.nproc_per_node.count;
    case NprocMode::kCpu: return std::max(1, static_cast<int>(LimitOf(spec.worker, "cpu")));
    case NprocMode::kGpu:
    case NprocMode::kAuto: return std::max(1, gpus);
  }
  return 1;
}

protocol::WorkerConfig WorkerConfigOf(const TrainingJob& job) {
  const TrainingJobSpec& spec = job.spec;
  protocol::WorkerConfig config;
  config.job = {job.metadata.namespace_name, job.metadata.name, job.metadata.uid};
  config.rendezvous.heartbeat_interval_seconds = spec.rendezvous.heartbeat_interval_seconds;
  config.rendezvous.heartbeat_timeout_seconds = spec.rendezvous.heartbeat_timeout_seconds;
  config.rendezvous.join_timeout_seconds = spec.rendezvous.join_timeout_seconds;
  config.nproc = RanksPerPod(spec);
  config.metrics_port = spec.observability.metrics_port;
  config.in_place_limit = spec.failure_policy.in_place_limit;
  if (spec.training) config.training = TrainingSpecToJson(*spec.training);
  if (spec.checkpoint) {
    config.grace_period_seconds = spec.checkpoint->grace_period_seconds;
    config.checkpoint = CheckpointSpecToJson(*spec.checkpoint);
  }
  return config;
}

}  // namespace lockstep::api
