#include "runtime/common/api/worker_config_of.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep::api {
namespace {

constexpr int kDefaultGraceSeconds = 30;  // Kubernetes' own

const Json* LimitsOf(const WorkerSpec& worker) {
  const Json* containers = FindJson(worker.pod_template, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array()) return nullptr;
  for (const Json& container : *containers) {
    if (StringAt(container, {"name"}) == worker.container_name)
      return FindJson(container, {"resources", "limits"});
  }
  return nullptr;
}

// A Kubernetes quantity of whole devices or CPUs: "4", 4, "2500m". Rounded down.
int CountFromQuantity(const Json& quantity) {
  if (quantity.is_number()) return static_cast<int>(quantity.get<double>());
  if (!quantity.is_string()) return 0;
  const auto text = quantity.get<std::string>();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return static_cast<int>(*end == 'm' ? number / 1000 : number);
}

// The trainer container's limit of the resource whose name ends so; 0 where it has none.
int LimitOf(const WorkerSpec& worker, std::string_view suffix) {
  const Json* limits = LimitsOf(worker);
  if (limits == nullptr || !limits->is_object()) return 0;
  for (const auto& [name, quantity] : limits->items()) {
    if (name.ends_with(suffix)) return CountFromQuantity(quantity);
  }
  return 0;
}

protocol::OnHang OnHangOf(HealthAction action) {
  switch (action) {
    case HealthAction::kReport: return protocol::OnHang::kReport;
    case HealthAction::kRestart: return protocol::OnHang::kRestart;
    case HealthAction::kReplacePod: return protocol::OnHang::kReplacePod;
  }
  return protocol::OnHang::kRestart;
}

}  // namespace

int RanksPerPod(const TrainingJobSpec& spec) {
  switch (spec.nproc_per_node.mode) {
    case NprocMode::kCount: return spec.nproc_per_node.count;
    case NprocMode::kCpu: return std::max(1, LimitOf(spec.worker, "cpu"));
    case NprocMode::kGpu:
    case NprocMode::kAuto: return std::max(1, LimitOf(spec.worker, ".com/gpu"));
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
  config.health = {
      .first_step_timeout_seconds = static_cast<double>(spec.health_policy.first_step_timeout_seconds),
      .step_timeout_seconds = static_cast<double>(spec.health_policy.step_timeout_seconds.value_or(0)),
      .step_timeout_factor = spec.health_policy.step_timeout_factor,
      .on_hang = OnHangOf(spec.health_policy.on_hang)};
  const bool recreates = spec.failure_policy.restart_strategy == RestartStrategy::kRecreate;
  config.in_place_limit = recreates ? 0 : spec.failure_policy.in_place_limit;
  if (spec.training) config.training = TrainingSpecToJson(*spec.training);
  config.grace_period_seconds = static_cast<double>(
      IntAt(spec.worker.pod_template, {"spec", "terminationGracePeriodSeconds"}, kDefaultGraceSeconds));
  if (spec.checkpoint) {
    config.grace_period_seconds = spec.checkpoint->grace_period_seconds;
    config.checkpoint = CheckpointSpecToJson(*spec.checkpoint);
  }
  return config;
}

}  // namespace lockstep::api
