#include "runtime/common/api/validate_training.h"

#include <string_view>

#include "runtime/common/api/exclusions.h"

namespace lockstep::api {
namespace {

void CheckModel(const ModelSpec& model, const std::string& path, Violations& violations) {
  if (model.name == ModelName::kTorchscript && !model.torchscript) {
    Add(violations, path + ".torchscript",
        "is required where name is torchscript, with the path of a module");
  }
  if (model.torchscript && model.torchscript->path.find("://") != std::string::npos) {
    Add(violations, path + ".torchscript.path",
        "must be a path in the container, not \"" + model.torchscript->path + "\"");
  }
  if (model.name == ModelName::kPlugin && !model.plugin) {
    Add(violations, path + ".plugin",
        "is required where name is plugin, with the path of a library and the name of a model in it");
  }
  const bool has_heads = model.gpt.heads > 0;  // if false, the reader has reported it
  if (model.name == ModelName::kGpt && has_heads && model.gpt.embedding_size % model.gpt.heads != 0) {
    Add(violations, path + ".gpt.embeddingSize", "must be a multiple of heads");
  }
}

// A folder in the container, or the URI of a folder in a store.
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
    Add(violations, path + ".plugin",
        "is required where format is plugin, with the path of a library and the name of a data set in it");
  CheckDataPath(data, path, violations);
  const bool is_weighted = data.sampler == SamplerName::kWeighted;
  if (!is_weighted && !data.class_weights.empty())
    Add(violations, path + ".classWeights", "applies only where sampler is Weighted");
  if (is_weighted && !data.shuffle)
    Add(violations, path + ".shuffle", "must be true where sampler is Weighted");
  const bool names_records = data.format == DataFormat::kCsv || data.format == DataFormat::kImageFolder;
  if (data.on_corrupt_record == OnCorruptRecord::kSkip && !names_records) {
    Add(violations, path + ".onCorruptRecord",
        "Skip applies only where format is csv or imageFolder: in the other formats the end of a corrupt "
        "record is unknown");
  }
}

void CheckOptimizer(const OptimizerSpec& optimizer, const std::string& path, Violations& violations) {
  if (optimizer.nesterov && optimizer.momentum <= 0) {
    Add(violations, path + ".nesterov", "needs momentum above 0");
  }
  const bool is_muon = optimizer.name == OptimizerName::kMuon;
  const bool has_momentum = is_muon || optimizer.name == OptimizerName::kSgd;
  if (!has_momentum && (optimizer.momentum > 0 || optimizer.nesterov)) {
    Add(violations, path + ".momentum", "applies only where name is sgd or muon");
  }
  if (is_muon && optimizer.momentum <= 0) {
    Add(violations, path + ".momentum", "must be above 0 where name is muon; 0.95 is usual");
  }
  for (std::size_t i = 0; i < optimizer.groups.size(); ++i) {
    const ParameterGroupSpec& group = optimizer.groups[i];
    const std::string field = path + ".groups[" + std::to_string(i) + "]";
    if (group.frozen && (group.weight_decay || group.learning_rate_scale != 1)) {
      Add(violations, field + ".frozen",
          "must be false where weightDecay or learningRateScale is set: frozen parameters are not trained");
    }
    if (!is_muon && !group.use_muon) Add(violations, field + ".useMuon", "applies only where name is muon");
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

// How often ranks synchronise.
void CheckSync(const TrainingSpec& training, const std::string& path, Violations& violations) {
  const SyncSpec& sync = training.sync;
  const bool is_localsgd = training.strategy == Strategy::kLocalsgd;
  if (!is_localsgd && sync.every_steps != 1)
    Add(violations, path + ".sync.everySteps", "applies only where strategy is localsgd");
  if (!is_localsgd && training.strategy != Strategy::kAsync && sync.outer)
    Add(violations, path + ".sync.outer", "applies only where strategy is localsgd or async");
}

}  // namespace

Violations ValidateTraining(const TrainingSpec& training, const std::string& path) {
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
  if (training.strategy == Strategy::kPipeline && training.pipeline.stages) {
    Add(violations, path + ".pipeline.stages",
        "must be left out where strategy is pipeline, which has as many stages as ranks; use hybrid");
  }
  CheckModel(training.model, path + ".model", violations);
  CheckData(training.data, path + ".data", violations);
  CheckOptimizer(training.optimizer, path + ".optimizer", violations);
  CheckSchedule(training, path, violations);
  CheckSync(training, path, violations);
  const Violations excluded = FindExclusions(training, path);
  violations.insert(violations.end(), excluded.begin(), excluded.end());
  return violations;
}

}  // namespace lockstep::api
