#pragma once
// The configuration document that the operator (or `lockstep run`) gives to every worker of a job, as one
// JSON file. The `training` and `checkpoint` sections are the manifest's with all defaults filled in, so that
// the rank reads them with the same parser (runtime/common/api). Pure.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/message_limits.h"

namespace lockstep::protocol {

struct JobIdentity {
  std::string name_space;
  std::string name;
  std::string uid;
  friend bool operator==(const JobIdentity&, const JobIdentity&) = default;
  friend auto operator<=>(const JobIdentity&, const JobIdentity&) = default;
};

struct RendezvousConfig {
  std::string url;      // https://host:port of the rendezvous service
  std::string ca_file;  // PEM; empty: the system's
  double heartbeat_interval_seconds = 2;
  double heartbeat_timeout_seconds = 10;
  double join_timeout_seconds = 600;
};

// What to do about a hanging or slow rank.
enum class HealthAction {
  kReport,      // log and count
  kRestart,     // end the rank process and start another one in its place
  kReplacePod,  // end the pod with the exit code for it
};
[[nodiscard]] constexpr auto WordsOf(HealthAction) {
  return std::to_array<std::string_view>({"Report", "Restart", "ReplacePod"});
}

// Whose metadata service says whether the machine is about to be taken away.
enum class InstanceMetadata { kNone, kAws, kGcp, kAzure };
[[nodiscard]] constexpr auto WordsOf(InstanceMetadata) {
  return std::to_array<std::string_view>({"None", "AWS", "GCP", "Azure"});
}

// When a rank without progress counts as hanging (runtime/launch/supervisor/hang_detector.h), and what follows.
// Stragglers are found by the rendezvous.
struct HealthConfig {
  double first_step_timeout_seconds = 1800;
  double step_timeout_seconds = 0;  // 0: learned as step_timeout_factor times a typical step
  double step_timeout_factor = 10;
  HealthAction on_hang = HealthAction::kRestart;
  HealthAction on_straggler = HealthAction::kReport;
  InstanceMetadata instance_metadata = InstanceMetadata::kNone;
};

struct WorkerConfig {
  int version = 1;
  JobIdentity job;
  RendezvousConfig rendezvous;
  HealthConfig health;
  int nproc = 1;                      // rank processes in this pod
  int requested_processors = 0;       // the container's CPU request, rounded down, at least 1; 0: no request
  int requested_gpus = 0;             // the container's GPU limit
  int metrics_port = 9400;            // 0: the system chooses (local runs)
  double grace_period_seconds = 120;  // from SIGTERM to SIGKILL
  bool log_all_ranks = false;         // spec.observability.logs
  bool instruments_program = true;    // spec.observability.instrumentation
  std::string checkpoint_folder;      // spec.observability.checkpointFolder; empty: none
  int rank_metrics_limit = 1024;      // spec.observability.rankMetricsLimit
  int in_place_limit = 3;  // respawns of a rank without a completed step between; then the pod fails
  double store_patience_seconds = 1800;  // longest outage of a store that is waited for
  Json training = Json::object();        // spec.training
  Json checkpoint = Json::object();      // spec.checkpoint; empty: none
};

[[nodiscard]] Json WorkerConfigToJson(const WorkerConfig& config);
[[nodiscard]] Result<WorkerConfig> WorkerConfigFromJson(const Json& json);
[[nodiscard]] Result<WorkerConfig> ReadWorkerConfig(const std::string& path);

template <typename A>
void Describe(A& fields, Of<A, JobIdentity>& job) {
  fields.Field("namespace", job.name_space, limits::kName);
  fields.Field("name", job.name, limits::kName);
  fields.Field("uid", job.uid, limits::kName);
}

}  // namespace lockstep::protocol
