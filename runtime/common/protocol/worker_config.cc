#include "runtime/common/protocol/worker_config.h"

#include "runtime/common/base/fields.h"
#include "runtime/common/base/file.h"

namespace lockstep::protocol {

template <typename A>
void Describe(A& fields, Of<A, RendezvousConfig>& config) {
  fields.Field("url", config.url);
  fields.Field("caFile", config.ca_file);
  fields.Field("heartbeatIntervalSeconds", config.heartbeat_interval_seconds);
  fields.Field("heartbeatTimeoutSeconds", config.heartbeat_timeout_seconds);
  fields.Field("joinTimeoutSeconds", config.join_timeout_seconds);
}
template <typename A>
void Describe(A& fields, Of<A, HealthConfig>& config) {
  fields.Field("firstStepTimeoutSeconds", config.first_step_timeout_seconds);
  fields.Field("stepTimeoutSeconds", config.step_timeout_seconds);
  fields.Field("stepTimeoutFactor", config.step_timeout_factor);
  fields.Number("onHang", config.on_hang, HealthAction::kReplacePod);
  fields.Number("onStraggler", config.on_straggler, HealthAction::kReplacePod);
  fields.Number("instanceMetadata", config.instance_metadata, InstanceMetadata::kAzure);
}
template <typename A>
void Describe(A& fields, Of<A, WorkerConfig>& config) {
  fields.Field("version", config.version);
  fields.Field("job", config.job);
  fields.Field("rendezvous", config.rendezvous);
  fields.Field("health", config.health);
  fields.Field("nproc", config.nproc);
  fields.Field("requestedProcessors", config.requested_processors);
  fields.Field("requestedGpus", config.requested_gpus);
  fields.Field("metricsPort", config.metrics_port);
  fields.Field("logAllRanks", config.log_all_ranks);
  fields.Field("instrumentsProgram", config.instruments_program);
  fields.Field("checkpointFolder", config.checkpoint_folder);
  fields.Field("rankMetricsLimit", config.rank_metrics_limit);
  fields.Field("gracePeriodSeconds", config.grace_period_seconds);
  fields.Field("inPlaceLimit", config.in_place_limit);
  fields.Field("storePatienceSeconds", config.store_patience_seconds);
}

Json WorkerConfigToJson(const WorkerConfig& config) {
  Json json = MessageToJson(config);
  json["training"] = config.training;
  json["checkpoint"] = config.checkpoint;
  return json;
}

Result<WorkerConfig> WorkerConfigFromJson(const Json& json) {
  LOCKSTEP_TRY(WorkerConfig config, MessageFromJson<WorkerConfig>(json));
  if (config.version != 1) {
    return Error{ErrorCode::kUnsupported, "version: this worker reads version 1, not " +
                                              std::to_string(config.version) +
                                              "; use a worker image of the operator's version"};
  }
  if (const Json* training = FindJson(json, {"training"})) config.training = *training;
  if (const Json* checkpoint = FindJson(json, {"checkpoint"})) config.checkpoint = *checkpoint;
  return config;
}

Result<WorkerConfig> ReadWorkerConfig(const std::string& path) {
  LOCKSTEP_TRY(const std::string text, ReadFile(path));
  LOCKSTEP_TRY(const Json json, ParseJson(text).WithContext(path));
  return WorkerConfigFromJson(json).WithContext(path);
}

}  // namespace lockstep::protocol
