#include "runtime/common/protocol/worker_config.h"

#include "runtime/common/base/file.h"
#include "runtime/common/protocol/fields.h"

namespace lockstep::protocol {

template <class V>
void Visit(RendezvousConfig& m, V& v) {
  v("url", m.url);
  v("caFile", m.ca_file);
  v("heartbeatIntervalSeconds", m.heartbeat_interval_seconds);
  v("heartbeatTimeoutSeconds", m.heartbeat_timeout_seconds);
  v("joinTimeoutSeconds", m.join_timeout_seconds);
}
template <class V>
void Visit(HealthConfig& m, V& v) {
  v("firstStepTimeoutSeconds", m.first_step_timeout_seconds);
  v("stepTimeoutSeconds", m.step_timeout_seconds);
  v("stepTimeoutFactor", m.step_timeout_factor);
  v("onHang", m.on_hang);
  v("onStraggler", m.on_straggler);
  v("instanceMetadata", m.instance_metadata);
}
template <class V>
void Visit(WorkerConfig& m, V& v) {
  v("version", m.version);
  v("job", m.job);
  v("rendezvous", m.rendezvous);
  v("health", m.health);
  v("nproc", m.nproc);
  v("requestedProcessors", m.requested_processors);
  v("requestedGpus", m.requested_gpus);
  v("metricsPort", m.metrics_port);
  v("logAllRanks", m.log_all_ranks);
  v("instrumentsProgram", m.instruments_program);
  v("checkpointFolder", m.checkpoint_folder);
  v("rankMetricsLimit", m.rank_metrics_limit);
  v("gracePeriodSeconds", m.grace_period_seconds);
  v("inPlaceLimit", m.in_place_limit);
  v("storePatienceSeconds", m.store_patience_seconds);
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
