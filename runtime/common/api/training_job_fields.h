#pragma once
// The fields of spec and status with their limits; see fields.h.

#include "runtime/common/api/checkpoint_spec_fields.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/api/training_spec_fields.h"
#include "runtime/common/base/fields.h"

namespace lockstep::api {

inline constexpr double kMaxReplicas = 10000;
inline constexpr double kMaxSeconds = 31536000;  // a year
inline constexpr int32_t kMaxNprocPerNode = 64;

[[nodiscard]] Json IntOrWordToJson(const NprocPerNode& nproc);
[[nodiscard]] std::string IntOrWordFromJson(const Json& json, NprocPerNode& nproc);

// ---- spec ----

template <typename A>
void Describe(A& fields, Of<A, WorkerSpec>& spec) {
  fields.Field("replicas", spec.replicas, {.min = 1, .max = kMaxReplicas});
  fields.Field("containerName", spec.container_name, {.max_length = 63});
  fields.Field("createServiceAccount", spec.create_service_account);
  fields.Required("template", spec.pod_template);
}

template <typename A>
void Describe(A& fields, Of<A, ElasticPolicy>& spec) {
  fields.Required("minReplicas", spec.min_replicas, {.min = 1, .max = kMaxReplicas});
  fields.Required("maxReplicas", spec.max_replicas, {.min = 1, .max = kMaxReplicas});
  fields.Field("shrinkAfterSeconds", spec.shrink_after_seconds, {.min = 0, .max = kMaxSeconds});
  fields.Field("growDelaySeconds", spec.grow_delay_seconds, {.min = 0, .max = kMaxSeconds});
  fields.Field("metrics", spec.metrics, {.max_items = 16});
}

template <typename A>
void Describe(A& fields, Of<A, RendezvousSpec>& spec) {
  fields.Field("joinTimeoutSeconds", spec.join_timeout_seconds, {.min = 1, .max = 86400});
  fields.Field("lastCallSeconds", spec.last_call_seconds, {.min = 0, .max = 3600});
  fields.Field("heartbeatIntervalSeconds", spec.heartbeat_interval_seconds, {.min = 1, .max = 600});
  fields.Field("heartbeatTimeoutSeconds", spec.heartbeat_timeout_seconds, {.min = 2, .max = 3600});
}

template <typename A>
void Describe(A& fields, Of<A, ExitCodeMatch>& spec) {
  fields.Required("operator", spec.match_operator);
  fields.Required("values", spec.values, {.min = 0, .max = 255, .min_items = 1, .max_items = 64});
}

template <typename A>
void Describe(A& fields, Of<A, ConditionMatch>& spec) {
  fields.Required("type", spec.type, {.max_length = 316});
  fields.Field("status", spec.status);
}

template <typename A>
void Describe(A& fields, Of<A, FailureRule>& spec) {
  fields.Field("name", spec.name, {.max_length = 63});
  fields.Required("action", spec.action);
  fields.Field("onExitCodes", spec.on_exit_codes);
  fields.Field("onPodConditions", spec.on_pod_conditions, {.min_items = 1, .max_items = 16});
  fields.Field("onCauses", spec.on_causes, {.min_items = 1, .max_items = 6});
}

template <typename A>
void Describe(A& fields, Of<A, FailurePolicy>& spec) {
  fields.Field("maxRestarts", spec.max_restarts, {.min = 0, .max = 1e6});
  fields.Field("restartWindowSeconds", spec.restart_window_seconds, {.min = 1, .max = kMaxSeconds});
  fields.Field("restartStrategy", spec.restart_strategy);
  fields.Field("inPlaceLimit", spec.in_place_limit, {.min = 0, .max = 1000});
  fields.Field("storePatienceSeconds", spec.store_patience_seconds, {.min = 0, .max = kMaxSeconds});
  fields.Field("rules", spec.rules, {.max_items = 20});
}

template <typename A>
void Describe(A& fields, Of<A, StragglerPolicy>& spec) {
  fields.Field("factor", spec.factor, {.above = 1, .max = 1000});
  fields.Field("windowSteps", spec.window_steps, {.min = 1, .max = 1e6});
  fields.Field("action", spec.action);
}

template <typename A>
void Describe(A& fields, Of<A, TaintMatch>& spec) {
  fields.Required("key", spec.key, {.max_length = 316});
  fields.Field("effect", spec.effect, {.max_length = 63});
}

template <typename A>
void Describe(A& fields, Of<A, NodeFaultPolicy>& spec) {
  fields.Field("conditions", spec.conditions, {.max_items = 16});
  fields.Field("taints", spec.taints, {.max_items = 16});
  fields.Field("action", spec.action);
}

template <typename A>
void Describe(A& fields, Of<A, HealthPolicy>& spec) {
  fields.Field("firstStepTimeoutSeconds", spec.first_step_timeout_seconds, {.min = 1, .max = kMaxSeconds});
  fields.Field("stepTimeoutSeconds", spec.step_timeout_seconds, {.min = 1, .max = kMaxSeconds});
  fields.Field("stepTimeoutFactor", spec.step_timeout_factor, {.above = 1, .max = 10000});
  fields.Field("onHang", spec.on_hang);
  fields.Field("straggler", spec.straggler);
  fields.Field("nodeFault", spec.node_fault);
  fields.Field("instanceMetadata", spec.instance_metadata);
}

template <typename A>
void Describe(A& fields, Of<A, RunPolicy>& spec) {
  fields.Field("activeDeadlineSeconds", spec.active_deadline_seconds, {.min = 1, .max = kMaxSeconds});
  fields.Field("startupDeadlineSeconds", spec.startup_deadline_seconds, {.min = 1, .max = kMaxSeconds});
  fields.Field("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished, {.min = 0, .max = kMaxSeconds});
  fields.Field("cleanPodPolicy", spec.clean_pod_policy);
  fields.Field("forceDeleteAfterSeconds", spec.force_delete_after_seconds, {.min = 0, .max = kMaxSeconds});
}

template <typename A>
void Describe(A& fields, Of<A, SuccessPolicy>& spec) {
  fields.Field("type", spec.type);
}

template <typename A>
void Describe(A& fields, Of<A, GangPolicy>& spec) {
  fields.Field("provider", spec.provider);
  fields.Field("minCount", spec.min_count, {.min = 1, .max = kMaxReplicas});
  fields.Field("scheduleTimeoutSeconds", spec.schedule_timeout_seconds, {.min = 1, .max = kMaxSeconds});
}

template <typename A>
void Describe(A& fields, Of<A, TopologyPolicy>& spec) {
  fields.Required("key", spec.key, {.max_length = 317});
  fields.Field("mode", spec.mode);
}

template <typename A>
void Describe(A& fields, Of<A, SchedulingPolicy>& spec) {
  fields.Field("gang", spec.gang);
  fields.Field("queueName", spec.queue_name, {.max_length = 253});
  fields.Field("priorityClassName", spec.priority_class_name, {.max_length = 253});
  fields.Field("podDisruptionBudget", spec.pod_disruption_budget);
  fields.Field("topology", spec.topology);
}

template <typename A>
void Describe(A& fields, Of<A, NetworkSpec>& spec) {
  fields.Field("hostNetwork", spec.host_network);
  fields.Field("networkPolicy", spec.network_policy);
}

template <typename A>
void Describe(A& fields, Of<A, ObservabilitySpec>& spec) {
  fields.Field("metricsPort", spec.metrics_port, {.min = 1024, .max = 65535});
  fields.Field("logs", spec.logs);
  fields.Field("rankMetricsLimit", spec.rank_metrics_limit, {.min = 0, .max = 1000000});
  fields.Field("instrumentation", spec.instrumentation);
  fields.Field("checkpointFolder", spec.checkpoint_folder, {.max_length = 1024});
}

template <typename A>
void Describe(A& fields, Of<A, TrainingJobSpec>& spec) {
  fields.Field("managedBy", spec.managed_by, {.max_length = 63});
  fields.Field("suspend", spec.suspend);
  fields.Field("nprocPerNode", spec.nproc_per_node);
  fields.Required("worker", spec.worker);
  fields.Field("standbyReplicas", spec.standby_replicas, {.min = 0, .max = kMaxReplicas});
  fields.Field("elasticPolicy", spec.elastic_policy);
  fields.Field("training", spec.training);
  fields.Field("checkpoint", spec.checkpoint);
  fields.Field("rendezvous", spec.rendezvous);
  fields.Field("failurePolicy", spec.failure_policy);
  fields.Field("healthPolicy", spec.health_policy);
  fields.Field("runPolicy", spec.run_policy);
  fields.Field("successPolicy", spec.success_policy);
  fields.Field("schedulingPolicy", spec.scheduling_policy);
  fields.Field("network", spec.network);
  fields.Field("observability", spec.observability);
}

// ---- status ----

template <typename A>
void Describe(A& fields, Of<A, Condition>& status) {
  fields.Required("type", status.type, {.max_length = 316});
  fields.Required("status", status.status);
  fields.Required("reason", status.reason, {.max_length = 1024});
  fields.Required("message", status.message, {.max_length = 32768});
  fields.Required("lastTransitionTime", status.last_transition_time);
  fields.Field("observedGeneration", status.observed_generation, {.min = 0});
}

template <typename A>
void Describe(A& fields, Of<A, RendezvousStatus>& status) {
  fields.Field("round", status.round);
  fields.Field("worldSize", status.world_size);
}

template <typename A>
void Describe(A& fields, Of<A, ProgressStatus>& status) {
  fields.Field("step", status.step);
  fields.Field("totalSteps", status.total_steps);
  fields.Field("epoch", status.epoch);
  fields.Field("loss", status.loss);
  fields.Field("samplesPerSecond", status.samples_per_second);
  fields.Field("lastProgressTime", status.last_progress_time);
  fields.Field("evaluation", status.evaluation);
}

template <typename A>
void Describe(A& fields, Of<A, CheckpointStatus>& status) {
  fields.Field("step", status.step);
  fields.Field("time", status.time);
  fields.Field("uri", status.uri, {.max_length = 2048});
}

template <typename A>
void Describe(A& fields, Of<A, LostSeconds>& status) {
  fields.Field("scheduling", status.scheduling);
  fields.Field("startup", status.startup);
  fields.Field("rendezvous", status.rendezvous);
  fields.Field("checkpoint", status.checkpoint);
  fields.Field("recompute", status.recompute);
  fields.Field("stalled", status.stalled);
}

template <typename A>
void Describe(A& fields, Of<A, GoodputStatus>& status) {
  fields.Field("since", status.since);
  fields.Field("activity", status.activity);
  fields.Field("ratio", status.ratio);
  fields.Field("productiveSeconds", status.productive_seconds);
  fields.Field("lostSeconds", status.lost_seconds);
}

template <typename A>
void Describe(A& fields, Of<A, ScalingRecord>& status) {
  fields.Required("worldSize", status.world_size);
  fields.Field("samplesPerSecond", status.samples_per_second);
  fields.Field("communication", status.communication);
  fields.Field("data", status.data);
  fields.Field("steps", status.steps);
  fields.Field("time", status.time);
}

template <typename A>
void Describe(A& fields, Of<A, DamagedCheckpoint>& status) {
  fields.Field("time", status.time);
  fields.Field("step", status.step);
  fields.Field("reason", status.reason, {.max_length = 512});
}

template <typename A>
void Describe(A& fields, Of<A, RestartRecord>& status) {
  fields.Field("time", status.time);
  fields.Field("round", status.round);
  fields.Field("cause", status.cause);
  fields.Field("rule", status.rule, {.max_length = 63});
  fields.Field("ranks", status.ranks, {.max_items = 64});
  fields.Field("node", status.node, {.max_length = 253});
  fields.Field("exitCode", status.exit_code);
  fields.Field("level", status.level);
  fields.Field("detectionSeconds", status.detection_seconds);
  fields.Field("recoverySeconds", status.recovery_seconds);
  fields.Field("lostSteps", status.lost_steps);
  fields.Field("message", status.message, {.max_length = 1024});
}

template <typename A>
void Describe(A& fields, Of<A, RestartWindowStatus>& status) {
  fields.Field("since", status.since);
  fields.Field("attempt", status.attempt);
}

template <typename A>
void Describe(A& fields, Of<A, GangStatus>& status) {
  fields.Field("releases", status.releases);
  fields.Field("releasedAt", status.released_at);
}

template <typename A>
void Describe(A& fields, Of<A, AvoidedNode>& status) {
  fields.Field("name", status.name, {.max_length = 253});
  fields.Field("since", status.since);
  fields.Field("reason", status.reason, {.max_length = 1024});
  fields.Field("mayReturn", status.may_return);
}

template <typename A>
void Describe(A& fields, Of<A, TrainingJobStatus>& status) {
  fields.Field("observedGeneration", status.observed_generation);
  fields.Field("conditions", status.conditions, {.max_items = 16});
  fields.Field("state", status.state, {.max_length = 63});
  fields.Field("startTime", status.start_time);
  fields.Field("completionTime", status.completion_time);
  fields.Field("replicas", status.replicas);
  fields.Field("readyReplicas", status.ready_replicas);
  fields.Field("standbyReplicas", status.standby_replicas);
  fields.Field("selector", status.selector, {.max_length = 512});
  fields.Field("attempt", status.attempt);
  fields.Field("restartWindow", status.restart_window);
  fields.Field("givenUpSlots", status.given_up_slots, {.max_items = 64});
  fields.Field("avoidedNodes", status.avoided_nodes, {.max_items = 64});
  fields.Field("gang", status.gang);
  fields.Field("rendezvous", status.rendezvous);
  fields.Field("progress", status.progress);
  fields.Field("checkpoint", status.checkpoint);
  fields.Field("damagedCheckpoints", status.damaged_checkpoints, {.max_items = 8});
  fields.Field("scaling", status.scaling, {.max_items = 16});
  fields.Field("goodput", status.goodput);
  fields.Field("restarts", status.restarts, {.max_items = 10});
}

}  // namespace lockstep::api
