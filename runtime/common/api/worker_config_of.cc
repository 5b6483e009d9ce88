#include "runtime/common/api/worker_config_of.h"

#include <algorithm>
#include <optional>

#include "runtime/common/api/container_resources.h"
#include "runtime/common/api/program_of.h"

namespace lockstep::api {
namespace {

constexpr int kDefaultGraceSeconds = 30;  // the default of Kubernetes

const Json& TrainerOf(const WorkerSpec& worker) {
  static const Json none = Json::object();
  const Json* found = FindTrainer(worker);
  return found != nullptr ? *found : none;
}

int AtLeastOne(std::optional<int> count) { return std::max(1, count.value_or(0)); }

}  // namespace

bool TakesAllDevices(const TrainingJobSpec& spec) {
  return spec.training && TakesAllDevices(spec.training->strategy);
}

int RanksPerPod(const TrainingJobSpec& spec) {
  switch (spec.nproc_per_node.mode) {
    case NprocMode::kCount: return spec.nproc_per_node.count;
    case NprocMode::kCpu: return AtLeastOne(CountOf(TrainerOf(spec.worker), "limits", "cpu"));
    case NprocMode::kAuto: return TakesAllDevices(spec) ? 1 : AtLeastOne(GpusOf(TrainerOf(spec.worker)));
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
  if (const auto requested = CountOf(TrainerOf(spec.worker), "requests", "cpu"))
    config.requested_processors = AtLeastOne(requested);
  config.requested_gpus = GpusOf(TrainerOf(spec.worker)).value_or(0);
  config.metrics_port = spec.observability.metrics_port;
  config.rank_metrics_limit = spec.observability.rank_metrics_limit;
  config.log_all_ranks = spec.observability.logs == Logs::kAll;
  config.instruments_program = spec.observability.instrumentation == Instrumentation::kAuto;
  config.checkpoint_folder = spec.observability.checkpoint_folder;
  config.health = {
      .first_step_timeout_seconds = static_cast<double>(spec.health_policy.first_step_timeout_seconds),
      .step_timeout_seconds = static_cast<double>(spec.health_policy.step_timeout_seconds.value_or(0)),
      .step_timeout_factor = spec.health_policy.step_timeout_factor,
      .on_hang = spec.health_policy.on_hang,
      .instance_metadata = spec.health_policy.instance_metadata};
  if (spec.health_policy.straggler) config.health.on_straggler = spec.health_policy.straggler->action;
  const bool recreates = spec.failure_policy.restart_strategy == RestartStrategy::kRecreate;
  config.in_place_limit = recreates ? 0 : spec.failure_policy.in_place_limit;
  config.store_patience_seconds = spec.failure_policy.store_patience_seconds;
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
