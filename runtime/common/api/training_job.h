#pragma once
// The DistributedTrainingJob resource (lockstep.dev/v1alpha1) as values, with the defaults of the CRD. The
// operator gets one from the API server, the command line from a manifest. Values, any thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/enum_text.h"
#include "runtime/common/base/json.h"
#include "runtime/common/protocol/failure_cause.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::api {

inline constexpr std::string_view kGroup = "lockstep.dev";
inline constexpr std::string_view kVersion = "v1alpha1";
inline constexpr std::string_view kApiVersion = "lockstep.dev/v1alpha1";
inline constexpr std::string_view kKind = "DistributedTrainingJob";
inline constexpr std::string_view kPlural = "distributedtrainingjobs";
// spec.managedBy: absent or this value means that this operator runs the job.
inline constexpr std::string_view kManagedByLockstep = "lockstep.dev/operator";

// Also in messages between the pods and the operator.
using protocol::FailureCause;
using protocol::HealthAction;
using protocol::InstanceMetadata;
using rendezvous::RecoveryLevel;
using EvaluationStatus = protocol::Evaluated;

// ---- spec ----

enum class NprocMode { kAuto, kCpu, kCount };
enum class RestartStrategy { kInPlace, kRecreate };
enum class FailureAction { kFailJob, kRestart, kRestartIgnoringLimit, kReplacePod, kShrinkJob };
enum class ExitCodeOperator { kIn, kNotIn };
enum class ConditionStatus { kTrue, kFalse, kUnknown };
enum class CleanPodPolicy { kAll, kRunning, kNone };
enum class SuccessType { kAll, kAny, kRank0 };
enum class GangProvider { kAuto, kNone, kWorkload, kCoscheduling, kVolcano };
enum class TopologyMode { kPreferred, kRequired };
enum class NetworkPolicy { kIsolate, kNone };
enum class Logs { kRank0, kAll };
enum class Instrumentation { kAuto, kNone };

// auto = GPU limit of the trainer container, else 1. Written as "auto", "cpu" or an integer.
struct NprocPerNode {
  NprocMode mode = NprocMode::kAuto;
  int32_t count = 0;  // if mode is kCount

  friend bool operator==(const NprocPerNode&, const NprocPerNode&) = default;
};

struct WorkerSpec {
  int32_t replicas = 1;
  std::string container_name = "trainer";
  bool create_service_account = false;
  Json pod_template;  // spec.worker.template: a PodTemplateSpec as the user wrote it
};

struct ElasticPolicy {
  int32_t min_replicas = 1;
  int32_t max_replicas = 1;
  int32_t shrink_after_seconds = 60;
  int32_t grow_delay_seconds = 30;
  std::vector<Json> metrics;  // autoscaling/v2 MetricSpec
};

struct RendezvousSpec {
  int32_t join_timeout_seconds = 600;
  int32_t last_call_seconds = 3;
  int32_t heartbeat_interval_seconds = 2;
  int32_t heartbeat_timeout_seconds = 10;
};

struct ExitCodeMatch {
  ExitCodeOperator match_operator = ExitCodeOperator::kIn;
  std::vector<int64_t> values;
};

struct ConditionMatch {
  std::string type;
  ConditionStatus status = ConditionStatus::kTrue;
};

// Exactly one of the three `on_…` fields is set.
struct FailureRule {
  std::string name;
  FailureAction action = FailureAction::kRestart;
  std::optional<ExitCodeMatch> on_exit_codes;
  std::vector<ConditionMatch> on_pod_conditions;
  std::vector<FailureCause> on_causes;
};

struct FailurePolicy {
  int32_t max_restarts = 3;
  std::optional<int32_t> restart_window_seconds;
  RestartStrategy restart_strategy = RestartStrategy::kInPlace;
  int32_t in_place_limit = 3;
  int32_t store_patience_seconds = 1800;
  std::vector<FailureRule> rules;
};

struct StragglerPolicy {
  double factor = 1.5;
  int32_t window_steps = 100;
  HealthAction action = HealthAction::kReport;
};

struct TaintMatch {
  std::string key;
  std::string effect;  // empty: any
};

struct NodeFaultPolicy {
  std::vector<ConditionMatch> conditions;
  std::vector<TaintMatch> taints;
  HealthAction action = HealthAction::kReplacePod;
};

struct HealthPolicy {
  int32_t first_step_timeout_seconds = 1800;
  std::optional<int32_t> step_timeout_seconds;
  double step_timeout_factor = 10.0;
  HealthAction on_hang = HealthAction::kRestart;
  std::optional<StragglerPolicy> straggler;
  std::optional<NodeFaultPolicy> node_fault;
  InstanceMetadata instance_metadata = InstanceMetadata::kNone;
};

struct RunPolicy {
  std::optional<int64_t> active_deadline_seconds;
  std::optional<int64_t> startup_deadline_seconds;
  std::optional<int64_t> ttl_seconds_after_finished;
  CleanPodPolicy clean_pod_policy = CleanPodPolicy::kRunning;
  int32_t force_delete_after_seconds = 120;
};

struct SuccessPolicy {
  SuccessType type = SuccessType::kAll;
};

struct GangPolicy {
  GangProvider provider = GangProvider::kAuto;
  std::optional<int32_t> min_count;
  std::optional<int32_t> schedule_timeout_seconds;
};

struct TopologyPolicy {
  std::string key;
  TopologyMode mode = TopologyMode::kPreferred;
};

struct SchedulingPolicy {
  std::optional<GangPolicy> gang;
  std::string queue_name;
  std::string priority_class_name;
  bool pod_disruption_budget = false;
  std::optional<TopologyPolicy> topology;
};

struct NetworkSpec {
  bool host_network = false;
  NetworkPolicy network_policy = NetworkPolicy::kIsolate;
};

struct ObservabilitySpec {
  int32_t metrics_port = 9400;
  Logs logs = Logs::kRank0;
  int32_t rank_metrics_limit = 1024;
  Instrumentation instrumentation = Instrumentation::kAuto;  // of a program of the user's own
  std::string checkpoint_folder;                             // of such a program; empty: not known
};

struct TrainingJobSpec {
  std::string managed_by;  // empty: this operator
  bool suspend = false;
  NprocPerNode nproc_per_node;
  WorkerSpec worker;
  int32_t standby_replicas = 0;
  std::optional<ElasticPolicy> elastic_policy;  // absent: fixed size
  std::optional<TrainingSpec> training;         // absent: a program of the user's own
  std::optional<CheckpointSpec> checkpoint;     // absent: nothing is saved
  RendezvousSpec rendezvous;
  FailurePolicy failure_policy;
  HealthPolicy health_policy;
  RunPolicy run_policy;
  SuccessPolicy success_policy;
  SchedulingPolicy scheduling_policy;
  std::optional<NetworkSpec> network;
  ObservabilitySpec observability;

  // Worker pods, including standbys.
  [[nodiscard]] int32_t pod_count() const { return worker.replicas + standby_replicas; }
  // Bounds of the number of pods in a round; both are worker.replicas if the size is fixed.
  [[nodiscard]] int32_t min_replicas() const {
    return elastic_policy ? elastic_policy->min_replicas : worker.replicas;
  }
  [[nodiscard]] int32_t max_replicas() const {
    return elastic_policy ? elastic_policy->max_replicas : worker.replicas;
  }
};

// ---- status ----

// metav1.Condition. conditions.h sets and finds them.
struct Condition {
  std::string type;
  ConditionStatus status = ConditionStatus::kUnknown;
  std::string reason;
  std::string message;
  int64_t observed_generation = 0;
  WallTime last_transition_time{};

  friend bool operator==(const Condition&, const Condition&) = default;
};

struct RendezvousStatus {
  int64_t round = 0;
  int32_t world_size = 0;

  friend bool operator==(const RendezvousStatus&, const RendezvousStatus&) = default;
};

struct ProgressStatus {
  int64_t step = 0;
  int64_t total_steps = 0;
  int64_t epoch = 0;
  std::optional<double> loss;
  std::optional<double> samples_per_second;
  std::optional<WallTime> last_progress_time;
  std::optional<EvaluationStatus> evaluation;  // the newest

  friend bool operator==(const ProgressStatus&, const ProgressStatus&) = default;
};

struct CheckpointStatus {
  std::optional<int64_t> step;  // absent: a program's checkpoint whose name does not have it
  std::optional<WallTime> time;
  std::string uri;

  friend bool operator==(const CheckpointStatus&, const CheckpointStatus&) = default;
};

struct LostSeconds {
  double scheduling = 0;
  double startup = 0;
  double rendezvous = 0;
  double checkpoint = 0;
  double recompute = 0;
  double stalled = 0;

  friend bool operator==(const LostSeconds&, const LostSeconds&) = default;
};

// What a job spends its time on; exactly one of them at any time.
enum class Activity { kScheduling, kStartup, kRendezvous, kTraining, kRecompute, kStalled };

// Accounts for all seconds since `since`: each is either productive or lost, so their sum is the accounted
// time.
struct GoodputStatus {
  std::optional<WallTime> since;  // first admission
  Activity activity = Activity::kScheduling;
  double ratio = 0;
  double productive_seconds = 0;
  LostSeconds lost_seconds;

  friend bool operator==(const GoodputStatus&, const GoodputStatus&) = default;
};

// How the job trained with one world size.
struct ScalingRecord {
  int32_t world_size = 0;
  double samples_per_second = 0;
  double communication = 0;  // share of the time of a step that rank 0 waits for other ranks
  double data = 0;           // share that it waits for samples
  int64_t steps = 0;         // that were measured
  std::optional<WallTime> time;

  friend bool operator==(const ScalingRecord&, const ScalingRecord&) = default;
};

struct DamagedCheckpoint {
  std::optional<WallTime> time;
  int64_t step = 0;
  std::string reason;

  friend bool operator==(const DamagedCheckpoint&, const DamagedCheckpoint&) = default;
};
struct RestartRecord {
  std::optional<WallTime> time;
  int64_t round = 0;  // the round that broke
  FailureCause cause = FailureCause::kInfrastructure;
  std::string rule;
  std::vector<int64_t> ranks;
  std::string node;
  std::optional<int32_t> exit_code;
  RecoveryLevel level = RecoveryLevel::kMembership;
  std::optional<double> detection_seconds;
  std::optional<double> recovery_seconds;
  int64_t lost_steps = 0;
  std::string message;

  friend bool operator==(const RestartRecord&, const RestartRecord&) = default;
};

// The restarts that count against failurePolicy.maxRestarts if it has a window.
struct RestartWindowStatus {
  std::optional<WallTime> since;
  int32_t attempt = 0;  // status.attempt at the beginning of the window

  friend bool operator==(const RestartWindowStatus&, const RestartWindowStatus&) = default;
};

// The state of a gang that did not start in time.
struct GangStatus {
  int32_t releases = 0;  // how often the gang was released
  std::optional<WallTime> released_at;

  friend bool operator==(const GangStatus&, const GangStatus&) = default;
};

// New pods of the job avoid this node if possible.
struct AvoidedNode {
  std::string name;
  std::optional<WallTime> since;
  std::string reason;
  bool may_return = false;  // nodeFault.action Restart: only recorded; new pods may be scheduled there

  friend bool operator==(const AvoidedNode&, const AvoidedNode&) = default;
};

struct TrainingJobStatus {
  int64_t observed_generation = 0;
  std::vector<Condition> conditions;
  std::string state;                        // one word, derived from the conditions
  std::optional<WallTime> start_time;       // first admission, or end of the last suspension
  std::optional<WallTime> completion_time;  // time of Complete or Failed
  int32_t replicas = 0;
  int32_t ready_replicas = 0;
  int32_t standby_replicas = 0;
  std::string selector;
  int32_t attempt = 0;
  std::optional<RestartWindowStatus> restart_window;
  std::vector<int64_t> given_up_slots;     // by ShrinkJob, until the spec changes
  std::vector<AvoidedNode> avoided_nodes;  // newest first, at most 64
  std::optional<GangStatus> gang;          // until the first round
  std::optional<RendezvousStatus> rendezvous;
  std::optional<ProgressStatus> progress;
  std::optional<CheckpointStatus> checkpoint;
  std::vector<DamagedCheckpoint> damaged_checkpoints;  // newest first, at most 8
  std::vector<ScalingRecord> scaling;                  // by world size, at most 16
  std::optional<GoodputStatus> goodput;
  std::vector<RestartRecord> restarts;  // newest first, at most 10

  friend bool operator==(const TrainingJobStatus&, const TrainingJobStatus&) = default;
};

// ---- the object ----

struct ObjectMeta {
  std::string name;
  std::string namespace_name;
  std::string uid;
  std::string resource_version;
  int64_t generation = 0;
  std::optional<WallTime> creation_timestamp;
  std::optional<WallTime> deletion_timestamp;
  std::map<std::string, std::string> labels;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> finalizers;
};

struct TrainingJob {
  ObjectMeta metadata;
  TrainingJobSpec spec;
  TrainingJobStatus status;
};

[[nodiscard]] constexpr auto WordsOf(RestartStrategy) {
  return std::to_array<std::string_view>({"InPlace", "Recreate"});
}
[[nodiscard]] constexpr auto WordsOf(FailureAction) {
  return std::to_array<std::string_view>(
      {"FailJob", "Restart", "RestartIgnoringLimit", "ReplacePod", "ShrinkJob"});
}
[[nodiscard]] constexpr auto WordsOf(ExitCodeOperator) {
  return std::to_array<std::string_view>({"In", "NotIn"});
}
[[nodiscard]] constexpr auto WordsOf(ConditionStatus) {
  return std::to_array<std::string_view>({"True", "False", "Unknown"});
}
[[nodiscard]] constexpr auto WordsOf(CleanPodPolicy) {
  return std::to_array<std::string_view>({"All", "Running", "None"});
}
[[nodiscard]] constexpr auto WordsOf(SuccessType) {
  return std::to_array<std::string_view>({"All", "Any", "Rank0"});
}
[[nodiscard]] constexpr auto WordsOf(GangProvider) {
  return std::to_array<std::string_view>({"Auto", "None", "Workload", "Coscheduling", "Volcano"});
}
[[nodiscard]] constexpr auto WordsOf(TopologyMode) {
  return std::to_array<std::string_view>({"Preferred", "Required"});
}
[[nodiscard]] constexpr auto WordsOf(NetworkPolicy) {
  return std::to_array<std::string_view>({"Isolate", "None"});
}
[[nodiscard]] constexpr auto WordsOf(Logs) { return std::to_array<std::string_view>({"Rank0", "All"}); }
[[nodiscard]] constexpr auto WordsOf(Instrumentation) {
  return std::to_array<std::string_view>({"Auto", "None"});
}
[[nodiscard]] constexpr auto WordsOf(Activity) {
  return std::to_array<std::string_view>(
      {"Scheduling", "Startup", "Rendezvous", "Training", "Recompute", "Stalled"});
}

}  // namespace lockstep::api
