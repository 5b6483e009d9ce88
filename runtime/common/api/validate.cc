#include "runtime/common/api/validate.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/common/api/kueue.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/profile_window.h"
#include "runtime/common/api/program_of.h"
#include "runtime/common/api/worker_config_of.h"
#include "runtime/common/protocol/environment.h"

namespace lockstep::api {
namespace {

using Violations = std::vector<std::string>;

void Add(Violations& violations, std::string_view path, std::string_view problem) {
  violations.push_back(std::string(path) + ": " + std::string(problem));
}

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

// The operator names, restarts and addresses the pods; a template that says otherwise would be overruled in
// silence.
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
        std::to_string(spec.worker.replicas) + " must lie within elasticPolicy, " +
            std::to_string(elastic.min_replicas) + " to " + std::to_string(elastic.max_replicas));
  }
  if (!elastic.metrics.empty() && !spec.scheduling_policy.queue_name.empty()) {
    Add(violations, "spec.elasticPolicy.metrics",
        "must be absent beside schedulingPolicy.queueName: each change of its size would queue the job anew");
  }
}

// A program of the user's own is started by its command. What only Lockstep's own runtime does would be
// passed over in silence.
void CheckProgram(const TrainingJobSpec& spec, Violations& violations) {
  const Json* trainer = FindTrainer(spec.worker);
  const Json* command = trainer == nullptr ? nullptr : FindJson(*trainer, {"command"});
  if (trainer != nullptr && (command == nullptr || !command->is_array() || command->empty())) {
    Add(violations, "spec.worker.template.spec.containers[" + spec.worker.container_name + "].command",
        "is required without spec.training: Lockstep starts this program itself, and cannot know the entry "
        "point of its image");
  }
  constexpr std::string_view kNeedsTraining =
      "needs spec.training: Lockstep does not see the steps of a program";
  if (spec.checkpoint) {
    Add(violations, "spec.checkpoint",
        "needs spec.training: a program saves and restores its state by itself");
  }
  if (spec.health_policy.step_timeout_seconds) {
    Add(violations, "spec.healthPolicy.stepTimeoutSeconds", kNeedsTraining);
  }
  if (spec.health_policy.straggler) Add(violations, "spec.healthPolicy.straggler", kNeedsTraining);
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

// s3://bucket or s3://bucket/prefix, gs:// and abfs:// alike; file:///absolute.
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

void CheckTorchscriptUri(const std::string& uri, const std::string& path, Violations& violations) {
  static constexpr std::array<std::string_view, 4> kSchemes = {"file:///", "s3://", "gs://", "abfs://"};
  const bool is_known =
      std::any_of(kSchemes.begin(), kSchemes.end(), [&](auto scheme) { return uri.starts_with(scheme); });
  if (uri.find("://") == std::string::npos || is_known) return;
  Add(violations, path, "must be a path in the container or begin with file:///, not \"" + uri + "\"");
}

void CheckModel(const ModelSpec& model, const std::string& path, Violations& violations) {
  if (model.name == ModelName::kTorchscript && !model.torchscript) {
    Add(violations, path + ".torchscript", "is required where name is torchscript");
  }
  if (model.torchscript) CheckTorchscriptUri(model.torchscript->uri, path + ".torchscript.uri", violations);
  if (model.name == ModelName::kPlugin && !model.plugin) {
    Add(violations, path + ".plugin", "is required where name is plugin");
  }
  const bool has_heads = model.gpt.heads > 0;  // or the reader has said so
  if (model.name == ModelName::kGpt && has_heads && model.gpt.embedding_size % model.gpt.heads != 0) {
    Add(violations, path + ".gpt.embeddingSize", "must be a multiple of heads");
  }
}

// A folder of the container, or a URI of one.
void CheckDataPath(const DataSpec& data, const std::string& path, Violations& violations) {
  const std::size_t scheme_end = data.path.find("://");
  const bool is_uri = scheme_end != std::string::npos;
  if (is_uri) {
    const std::string scheme = data.path.substr(0, scheme_end);
    const std::string rest = data.path.substr(scheme_end + 3);
    if (scheme != "s3" && scheme != "gs" && scheme != "abfs")
      Add(violations, path + ".path",
          "must be a folder or begin with s3://, gs:// or abfs://, not " + scheme + "://");
    if (rest.empty() || rest.front() == '/' || rest.find("//") != std::string::npos)
      Add(violations, path + ".path", "must name a bucket and a folder, as in s3://bucket/folder");
    if (rest.find("..") != std::string::npos || rest.find('?') != std::string::npos)
      Add(violations, path + ".path", "must not contain \"..\" or \"?\"");
  }
  constexpr const char* kRemoteOnly = "applies only where path is a URI, as in s3://bucket/folder";
  if (!is_uri && data.secret_ref) Add(violations, path + ".secretRef", kRemoteOnly);
  if (!is_uri && !data.cache.empty()) Add(violations, path + ".cache", kRemoteOnly);
  if (!data.cache.empty() && !data.cache.starts_with('/'))
    Add(violations, path + ".cache", "must be an absolute path in the container");
}

void CheckData(const DataSpec& data, const std::string& path, Violations& violations) {
  const bool has_path = data.format != DataFormat::kSynthetic && data.format != DataFormat::kPlugin;
  const std::string format(NameOf(data.format));
  if (has_path && data.path.empty()) Add(violations, path + ".path", "is required where format is " + format);
  if (!has_path && !data.path.empty())
    Add(violations, path + ".path", "must be absent where format is " + format);
  if (data.format == DataFormat::kPlugin && !data.plugin)
    Add(violations, path + ".plugin", "is required where format is plugin");
  CheckDataPath(data, path, violations);
  const bool is_weighted = data.sampler == SamplerName::kWeighted;
  if (!is_weighted && !data.class_weights.empty())
    Add(violations, path + ".classWeights", "applies only where sampler is weighted");
  if (is_weighted && !data.shuffle)
    Add(violations, path + ".shuffle", "must be true where sampler is weighted");
  const bool names_records = data.format == DataFormat::kCsv || data.format == DataFormat::kImageFolder;
  if (data.on_corrupt_record == OnCorruptRecord::kSkip && !names_records) {
    Add(violations, path + ".onCorruptRecord",
        "Skip applies only where format is csv or imageFolder: the others have no records that could be "
        "told from the next ones");
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, const std::string& path, Violations& violations) {
  if (optimizer.nesterov && optimizer.momentum <= 0) {
    Add(violations, path + ".nesterov", "needs momentum above 0");
  }
  if (optimizer.name != OptimizerName::kSgd && (optimizer.momentum > 0 || optimizer.nesterov)) {
    Add(violations, path + ".momentum", "applies only where name is sgd");
  }
}

void CheckSchedule(const TrainingSpec& training, const std::string& path, Violations& violations) {
  const ScheduleSpec& schedule = training.schedule;
  if (schedule.name == ScheduleName::kStep && !schedule.decay_every_steps) {
    Add(violations, path + ".schedule.decayEverySteps", "is required where name is step");
  }
  if (schedule.name != ScheduleName::kStep && schedule.decay_every_steps) {
    Add(violations, path + ".schedule.decayEverySteps", "applies only where name is step");
  }
  if (training.steps && schedule.warmup_steps >= *training.steps) {
    Add(violations, path + ".schedule.warmupSteps", "must be below steps");
  }
  if (training.global_batch_size > 0 && schedule.min_learning_rate > BaseLearningRate(training)) {
    Add(violations, path + ".schedule.minLearningRate",
        "must not exceed optimizer.learningRate" +
            std::string(schedule.base_batch_size ? ", times globalBatchSize / baseBatchSize" : ""));
  }
}

// How often ranks meet, and what does not go with meeting rarely.
void CheckSync(const TrainingSpec& training, const std::string& path, Violations& violations) {
  const SyncSpec& sync = training.sync;
  const bool is_async = training.strategy == Strategy::kAsync;
  if (training.strategy != Strategy::kLocalsgd && sync.every_steps != 1)
    Add(violations, path + ".sync.everySteps", "applies only where strategy is localsgd");
  if (training.strategy != Strategy::kLocalsgd && !is_async) {
    if (sync.outer) Add(violations, path + ".sync.outer", "applies only where strategy is localsgd or async");
    return;
  }
  const std::string where = "where strategy is " + std::string(NameOf(training.strategy));
  if (sync.compression != Compression::kNone)
    Add(violations, path + ".sync.compression", "must be none " + where + ": it sends no gradients");
  if (training.determinism == Determinism::kWorld) {
    Add(violations, path + ".determinism",
        "must be none " + where + ": what a rank learns alone depends on how many there are");
  }
  if (is_async && training.balance != Balance::kEqual) {
    Add(violations, path + ".balance",
        "must be equal " + where + ": each rank takes as many samples as it can anyway");
  }
}

// What does not go with layers on different ranks.
void CheckStages(const TrainingSpec& training, const std::string& path, Violations& violations) {
  if (!DividesLayers(training.strategy)) return;
  const std::string where = " where strategy is " + std::string(NameOf(training.strategy));
  if (training.model.name == ModelName::kTorchscript) {
    Add(violations, path + ".model.name",
        "must not be torchscript" + where + ": a module does not say what its layers are; use ddp or zero1");
  }
  if (training.data.on_corrupt_record == OnCorruptRecord::kSkip) {
    Add(violations, path + ".data.onCorruptRecord",
        "must be Fail" + where +
            ": only the ranks that read know which samples are left out; use ddp or zero1");
  }
  if (training.determinism == Determinism::kWorld) {
    Add(violations, path + ".determinism",
        "must be none" + where + ": how gradients are added up follows from the number of ranks");
  }
  if (training.balance == Balance::kSpeed) {
    Add(violations, path + ".balance", "must be equal" + where + ": each sample passes through all ranks");
  }
  if (training.sync.compression != Compression::kNone)
    Add(violations, path + ".sync.compression", "must be none" + where);
  if (training.strategy == Strategy::kPipeline && training.pipeline.stages) {
    Add(violations, path + ".pipeline.stages",
        "must be left out" + where + ", which has as many stages as ranks; use hybrid");
  }
}

// One process has neither a network nor others to share with.
void CheckOneProcess(const TrainingSpec& training, const std::string& path, Violations& violations) {
  if (training.strategy != Strategy::kDataparallel) return;
  const std::string where = " where strategy is dataparallel: ";
  if (training.determinism == Determinism::kWorld) {
    Add(violations, path + ".determinism",
        "must be none" + where + "how gradients are added up follows from the number of devices");
  }
  if (training.balance == Balance::kSpeed)
    Add(violations, path + ".balance", "must be equal" + where + "each device gets as many samples");
  if (training.sync.compression != Compression::kNone)
    Add(violations, path + ".sync.compression", "must be none" + where + "nothing is sent over a network");
}

// The first reason why there would be more ranks than the one.
void CheckOneRank(const TrainingJobSpec& spec, Violations& violations) {
  if (!TakesAllDevices(spec)) return;
  const std::string one =
      " where strategy is dataparallel, which is one process on all devices that it sees; for more ranks use "
      "ddp or hybrid";
  const NprocPerNode& nproc = spec.nproc_per_node;
  if (spec.worker.replicas > 1) return Add(violations, "spec.worker.replicas", "must be 1" + one);
  if (spec.max_replicas() > 1) return Add(violations, "spec.elasticPolicy.maxReplicas", "must be 1" + one);
  if (nproc.mode == NprocMode::kCpu || (nproc.mode == NprocMode::kCount && nproc.count > 1))
    Add(violations, "spec.nprocPerNode", "must be auto or 1" + one);
}

}  // namespace

std::vector<std::string> ValidateTraining(const TrainingSpec& training, const std::string& path) {
  Violations violations;
  if (training.epochs.has_value() == training.steps.has_value()) {
    Add(violations, path, "must have exactly one of epochs and steps");
  }
  if (training.micro_batch_size && *training.micro_batch_size > training.global_batch_size) {
    Add(violations, path + ".microBatchSize", "must not exceed globalBatchSize");
  }
  if (training.early_stop && !training.evaluation) {
    Add(violations, path + ".earlyStop", "needs evaluation");
  }
  if (training.early_stop && !training.early_stop->target && !training.early_stop->patience) {
    Add(violations, path + ".earlyStop", "must have target, patience or both");
  }
  if ((training.model.name == ModelName::kGpt) != (training.data.format == DataFormat::kTokens)) {
    Add(violations, path + ".data.format", "tokens belongs to the model gpt and to no other");
  }
  if (training.determinism == Determinism::kWorld && training.sync.compression != Compression::kNone) {
    Add(violations, path + ".sync.compression", "must be none where determinism is world");
  }
  CheckModel(training.model, path + ".model", violations);
  CheckData(training.data, path + ".data", violations);
  CheckOptimizer(training.optimizer, path + ".optimizer", violations);
  CheckSchedule(training, path, violations);
  CheckSync(training, path, violations);
  CheckStages(training, path, violations);
  CheckOneProcess(training, path, violations);
  return violations;
}

std::vector<std::string> Validate(const TrainingJob& job) {
  Violations violations;
  CheckName(job.metadata, violations);
  CheckTemplate(job.spec.worker, violations);
  CheckSize(job.spec, violations);
  CheckGang(job.spec, violations);
  CheckOneRank(job.spec, violations);
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
