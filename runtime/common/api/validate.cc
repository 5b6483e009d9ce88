#include "runtime/common/api/validate.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/common/api/container_resources.h"
#include "runtime/common/api/kueue.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/profile_window.h"
#include "runtime/common/api/program_of.h"
#include "runtime/common/api/validate_training.h"
#include "runtime/common/api/violations.h"
#include "runtime/common/api/worker_config_of.h"
#include "runtime/common/protocol/environment.h"

namespace lockstep::api {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// RFC 1035 label.
bool IsLabel(std::string_view name) {
  const auto allowed = [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; };
  return !name.empty() && IsLower(name.front()) && name.back() != '-' &&
         std::all_of(name.begin(), name.end(), allowed);
}

void CheckName(const ObjectMeta& metadata, Violations& violations) {
  if (IsLabel(metadata.name) && metadata.name.size() <= kMaxJobNameLength) return;
  Add(violations, "metadata.name",
      "must be a label of at most " + std::to_string(kMaxJobNameLength) +
          " characters: lower-case letters, digits and \"-\", beginning with a letter (pod names derive from "
          "it)");
}

void CheckContainers(const WorkerSpec& worker, Violations& violations) {
  const std::string path = "spec.worker.template.spec.containers";
  const Json* containers = FindJson(worker.pod_template, {"spec", "containers"});
  if (containers == nullptr || !containers->is_array() || containers->empty()) {
    return Add(violations, path, "must hold the container \"" + worker.container_name + "\"");
  }
  const auto is_trainer = [&](const Json& entry) {
    return StringAt(entry, {"name"}) == worker.container_name;
  };
  const auto trainer = std::find_if(containers->begin(), containers->end(), is_trainer);
  if (trainer == containers->end()) {
    return Add(violations, path,
               "no container is named \"" + worker.container_name + "\" (spec.worker.containerName)");
  }
  const std::string trainer_path = path + "[" + std::to_string(trainer - containers->begin()) + "]";
  if (StringAt(*trainer, {"image"}).empty()) Add(violations, trainer_path + ".image", "is required");
  const Json* env = FindJson(*trainer, {"env"});
  if (env == nullptr || !env->is_array()) return;
  for (const Json& variable : *env) {
    const std::string name = StringAt(variable, {"name"});
    const auto& for_users = protocol::env::kForUsers;
    const bool is_for_users = std::find(for_users.begin(), for_users.end(), name) != for_users.end();
    if (name.starts_with("LOCKSTEP_") && !is_for_users) {
      Add(violations, trainer_path + ".env", name + " is set by the operator; choose another name");
    }
    if (name == protocol::env::kProfile) {
      const auto window = ParseProfileWindow(StringAt(variable, {"value"}));
      if (!window.ok()) Add(violations, trainer_path + ".env", window.error().message);
    }
  }
}

// The operator names, restarts and addresses the pods, so it would silently overwrite these fields of a
// template.
void CheckTemplate(const WorkerSpec& worker, Violations& violations) {
  CheckContainers(worker, violations);
  const std::string path = "spec.worker.template.spec";
  const std::string restart = StringAt(worker.pod_template, {"spec", "restartPolicy"});
  if (!restart.empty() && restart != "Never") {
    Add(violations, path + ".restartPolicy",
        "must be absent or Never: Lockstep restarts what fails (see failurePolicy)");
  }
  for (const std::string_view field : {"hostname", "subdomain", "nodeName"}) {
    if (FindJson(worker.pod_template, {"spec", field}) != nullptr) {
      Add(violations, path + "." + std::string(field), "must be absent: it would be the same in every pod");
    }
  }
}

void CheckSize(const TrainingJobSpec& spec, Violations& violations) {
  if (!spec.elastic_policy) return;
  const ElasticPolicy& elastic = *spec.elastic_policy;
  if (elastic.min_replicas > elastic.max_replicas) {
    return Add(violations, "spec.elasticPolicy.minReplicas",
               std::to_string(elastic.min_replicas) + " must not exceed maxReplicas, " +
                   std::to_string(elastic.max_replicas));
  }
  if (spec.worker.replicas < elastic.min_replicas || spec.worker.replicas > elastic.max_replicas) {
    Add(violations, "spec.worker.replicas",
        std::to_string(spec.worker.replicas) + " must be within elasticPolicy, " +
            std::to_string(elastic.min_replicas) + " to " + std::to_string(elastic.max_replicas));
  }
  if (!elastic.metrics.empty() && !spec.scheduling_policy.queue_name.empty()) {
    Add(violations, "spec.elasticPolicy.metrics",
        "must be absent with schedulingPolicy.queueName: each change of its size would queue the job again");
  }
}

// A program of the user's own is started by its command. Fields for Lockstep's own runtime would be ignored
// silently.
void CheckProgram(const TrainingJobSpec& spec, Violations& violations) {
  const Json* trainer = FindTrainer(spec.worker);
  const Json* command = trainer == nullptr ? nullptr : FindJson(*trainer, {"command"});
  if (trainer != nullptr && (command == nullptr || !command->is_array() || command->empty())) {
    Add(violations, "spec.worker.template.spec.containers[" + spec.worker.container_name + "].command",
        "is required without spec.training: Lockstep starts this program itself, and cannot know the entry "
        "point of its image");
  }
  if (spec.checkpoint) {
    Add(violations, "spec.checkpoint",
        "needs spec.training: a program saves and restores its state by itself");
  }
  const std::string& folder = spec.observability.checkpoint_folder;
  if (!folder.empty() && folder.front() != '/') {
    Add(violations, "spec.observability.checkpointFolder",
        "must be a path that begins with /, where the program's container has the folder");
  }
  if (spec.observability.instrumentation == Instrumentation::kAuto) return;
  constexpr std::string_view kNeedsWitness =
      "needs spec.observability.instrumentation Auto: with None Lockstep does not see the steps of a program";
  if (spec.health_policy.step_timeout_seconds) {
    Add(violations, "spec.healthPolicy.stepTimeoutSeconds", kNeedsWitness);
  }
  if (spec.health_policy.straggler) Add(violations, "spec.healthPolicy.straggler", kNeedsWitness);
}

void CheckGang(const TrainingJobSpec& spec, Violations& violations) {
  const auto& gang = spec.scheduling_policy.gang;
  if (gang && gang->min_count && *gang->min_count > spec.worker.replicas) {
    Add(violations, "spec.schedulingPolicy.gang.minCount", "must not exceed worker.replicas");
  }
}

void CheckNetwork(const TrainingJobSpec& spec, Violations& violations) {
  if (spec.network && spec.network->host_network && spec.network->network_policy != NetworkPolicy::kNone) {
    Add(violations, "spec.network.hostNetwork",
        "needs networkPolicy None: no policy reaches pods in the network of their node");
  }
}

// s3://bucket or s3://bucket/prefix, likewise gs:// and abfs://; file:///absolute.
void CheckUri(std::string_view uri, Violations& violations) {
  static constexpr std::string_view kPath = "spec.checkpoint.uri";
  static constexpr std::array<std::string_view, 4> kSchemes = {"s3://", "gs://", "abfs://", "file:///"};
  const auto* scheme = std::find_if(kSchemes.begin(), kSchemes.end(),
                                    [&](auto candidate) { return uri.rfind(candidate, 0) == 0; });
  if (scheme == kSchemes.end()) {
    return Add(violations, kPath,
               "must begin with s3://, gs://, abfs:// or file:///, as in s3://bucket/folder, not \"" +
                   std::string(uri) + "\"");
  }
  const std::string_view rest = uri.substr(scheme->size());
  if (rest.empty() || rest.front() == '/') Add(violations, kPath, "names no bucket or folder");
  if (rest.find("..") != std::string_view::npos || rest.find('?') != std::string_view::npos) {
    Add(violations, kPath, "must not contain \"..\" or \"?\"");
  }
}

void CheckCheckpoint(const CheckpointSpec& spec, Violations& violations) {
  CheckUri(spec.uri, violations);
  if (spec.interval == CheckpointInterval::kAuto && (spec.interval_steps || spec.interval_seconds)) {
    Add(violations, "spec.checkpoint.interval",
        "Auto chooses when to save: leave out intervalSteps and intervalSeconds, or interval");
  }
}

void CheckRules(const FailurePolicy& policy, Violations& violations) {
  for (std::size_t index = 0; index < policy.rules.size(); ++index) {
    const FailureRule& rule = policy.rules[index];
    const std::string path = "spec.failurePolicy.rules[" + std::to_string(index) + "]";
    const int given = int{rule.on_exit_codes.has_value()} + int{!rule.on_pod_conditions.empty()} +
                      int{!rule.on_causes.empty()};
    if (given != 1)
      Add(violations, path, "must have exactly one of onExitCodes, onPodConditions and onCauses");
    if (!rule.on_exit_codes || rule.on_exit_codes->match_operator != ExitCodeOperator::kIn) continue;
    const auto& values = rule.on_exit_codes->values;
    if (std::find(values.begin(), values.end(), 0) != values.end()) {
      Add(violations, path + ".onExitCodes.values", "0 is not a failure");
    }
  }
}

// Reports the first reason why there would be more than one rank.
void CheckOneRank(const TrainingJobSpec& spec, Violations& violations) {
  if (!TakesAllDevices(spec)) return;
  const std::string one =
      " where strategy is " + std::string(NameOf(spec.training->strategy)) +
      ", which is one process on all devices that it sees; for more ranks use ddp, pipeline or hybrid";
  const NprocPerNode& nproc = spec.nproc_per_node;
  if (spec.worker.replicas > 1) return Add(violations, "spec.worker.replicas", "must be 1" + one);
  if (spec.max_replicas() > 1) return Add(violations, "spec.elasticPolicy.maxReplicas", "must be 1" + one);
  if (nproc.mode == NprocMode::kCpu || (nproc.mode == NprocMode::kCount && nproc.count > 1))
    Add(violations, "spec.nprocPerNode", "must be auto or 1" + one);
}

// One rank on a pod with many GPUs would silently leave the others idle.
void CheckRanksAreKnown(const TrainingJobSpec& spec, Violations& violations) {
  const Json* trainer = FindTrainer(spec.worker);
  if (spec.nproc_per_node.mode != NprocMode::kAuto || TakesAllDevices(spec) || trainer == nullptr) return;
  if (!HasClaims(*trainer) || GpusOf(*trainer)) return;
  Add(violations, "spec.nprocPerNode",
      "must be a number, not auto, where the container \"" + spec.worker.container_name +
          "\" has resources.claims: how many devices a claim brings is in the ResourceClaim, not in the pod "
          "template");
}

}  // namespace

Violations Validate(const TrainingJob& job) {
  Violations violations;
  CheckName(job.metadata, violations);
  CheckTemplate(job.spec.worker, violations);
  CheckSize(job.spec, violations);
  CheckGang(job.spec, violations);
  CheckOneRank(job.spec, violations);
  CheckRanksAreKnown(job.spec, violations);
  if (!job.spec.scheduling_policy.queue_name.empty()) {
    const Violations topology = ValidateTopology(job.spec.worker.pod_template, job.spec.pod_count());
    violations.insert(violations.end(), topology.begin(), topology.end());
  }
  if (!job.spec.training) CheckProgram(job.spec, violations);
  CheckNetwork(job.spec, violations);
  CheckRules(job.spec.failure_policy, violations);
  if (job.spec.checkpoint) CheckCheckpoint(*job.spec.checkpoint, violations);
  if (job.spec.rendezvous.heartbeat_timeout_seconds <= job.spec.rendezvous.heartbeat_interval_seconds) {
    Add(violations, "spec.rendezvous.heartbeatTimeoutSeconds", "must exceed heartbeatIntervalSeconds");
  }
  if (job.spec.training && !job.spec.observability.checkpoint_folder.empty()) {
    Add(violations, "spec.observability.checkpointFolder",
        "must be absent with spec.training, whose checkpoints are in spec.checkpoint.uri");
  }
  if (job.spec.training) {
    const Violations training = ValidateTraining(*job.spec.training, "spec.training");
    violations.insert(violations.end(), training.begin(), training.end());
    if (DividesLayers(job.spec.training->strategy) && job.spec.health_policy.straggler) {
      Add(violations, "spec.healthPolicy.straggler",
          "must be left out where strategy is pipeline or hybrid: stages do not compute equally long");
    }
  }
  return violations;
}

}  // namespace lockstep::api
