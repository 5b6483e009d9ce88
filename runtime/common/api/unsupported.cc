#include "runtime/common/api/unsupported.h"

#include <utility>

namespace lockstep::api {
namespace {

using Fields = std::vector<UnsupportedField>;

void Refuse(Fields& fields, bool is_asked, std::string path, std::string asked, std::string instead) {
  if (is_asked) fields.push_back({std::move(path), std::move(asked), std::move(instead)});
}

template <typename T>
std::string Text(T value) {
  return std::to_string(value);
}

// A whole section, or a value that differs from the only one that has a behaviour.
void RefuseSection(Fields& fields, bool is_given, const std::string& path, const std::string& what) {
  Refuse(fields, is_given, path, what, "leave it out");
}

template <typename T>
void RefuseChange(Fields& fields, const std::string& path, T asked, T works) {
  Refuse(fields, asked != works, path, Text(asked), "leave it out or use " + Text(works));
}

template <typename E>
void RefuseEnum(Fields& fields, bool is_asked, const std::string& path, E asked, const std::string& choices) {
  Refuse(fields, is_asked, path, std::string(NameOf(asked)), "use " + choices);
}

void CheckModelAndData(const TrainingSpec& training, Fields& fields) {
  const std::string path = "spec.training.";
  const ModelName model = training.model.name;
  RefuseEnum(fields, model == ModelName::kTorchscript, path + "model.name", model,
             "mlp, cnn, resnet18, resnet50, gpt or plugin");
  const DataSpec& data = training.data;
  RefuseEnum(fields, data.format == DataFormat::kImageFolder, path + "data.format", data.format,
             "idx, csv, npy, tokens or synthetic");
  RefuseEnum(fields, data.sampler != SamplerName::kUniform, path + "data.sampler", data.sampler, "uniform");
  Refuse(fields, data.augmentation.horizontal_flip, path + "data.augmentation.horizontalFlip", "true",
         "use false");
  RefuseChange(fields, path + "data.augmentation.cropPadding", data.augmentation.crop_padding, int64_t{0});
}

void CheckMethod(const TrainingSpec& training, Fields& fields) {
  const std::string path = "spec.training.";
  RefuseEnum(fields, training.precision == Precision::kFp16, path + "precision", training.precision,
             "fp32 or bf16");
  RefuseEnum(fields, training.strategy != Strategy::kDdp, path + "strategy", training.strategy, "ddp");
  const Compression compression = training.sync.compression;
  RefuseEnum(fields, compression == Compression::kPowersgd || compression == Compression::kTopk,
             path + "sync.compression", compression, "none, bf16 or fp16");
  RefuseChange(fields, path + "sync.everySteps", training.sync.every_steps, int64_t{1});
  RefuseChange(fields, path + "sync.staleness", training.sync.staleness, int64_t{1});
  RefuseChange(fields, path + "pipeline.stages", training.pipeline.stages, PipelineSpec{}.stages);
  RefuseSection(fields, training.early_stop.has_value(), path + "earlyStop", "stopping early");
}

void CheckCheckpoint(const CheckpointSpec& checkpoint, Fields& fields) {
  const std::string& uri = checkpoint.uri;
  const bool is_other_store = uri.rfind("gs://", 0) == 0 || uri.rfind("abfs://", 0) == 0;
  Refuse(fields, is_other_store, "spec.checkpoint.uri", uri.substr(0, uri.find(':') + 3),
         "use s3:// or file:///");
  RefuseEnum(fields, checkpoint.on_termination != OnTermination::kSave, "spec.checkpoint.onTermination",
             checkpoint.on_termination, "Save");
}

void CheckHealthPolicy(const HealthPolicy& policy, Fields& fields) {
  const std::string path = "spec.healthPolicy.";
  if (policy.node_fault) {
    RefuseEnum(fields, policy.node_fault->action == HealthAction::kRestart, path + "nodeFault.action",
               policy.node_fault->action, "ReplacePod or Report");
  }
}

void CheckSchedulingPolicy(const SchedulingPolicy& policy, Fields& fields) {
  if (policy.gang) {
    RefuseEnum(fields, policy.gang->provider == GangProvider::kWorkload,
               "spec.schedulingPolicy.gang.provider", policy.gang->provider,
               "Auto, None, Coscheduling or Volcano");
  }
  RefuseSection(fields, !policy.queue_name.empty(), "spec.schedulingPolicy.queueName", "queueing");
}

void CheckNetworkAndObservability(const TrainingJobSpec& spec, Fields& fields) {
  if (spec.network) {
    Refuse(fields, spec.network->host_network, "spec.network.hostNetwork", "true", "use false");
  }
  Refuse(fields, spec.observability.pod_monitor, "spec.observability.podMonitor", "true", "use false");
}

}  // namespace

std::string UnsupportedField::ToString() const {
  return path + ": " + asked + " is not implemented yet; " + instead;
}

std::vector<UnsupportedField> FindUnsupported(const TrainingJobSpec& spec) {
  Fields fields;
  if (spec.training) {
    CheckModelAndData(*spec.training, fields);
    CheckMethod(*spec.training, fields);
  } else {
    Refuse(fields, true, "spec.training", "a job without this section, which runs a program of its own,",
           "describe the training here");
  }
  Refuse(fields, spec.nproc_per_node.mode == NprocMode::kGpu, "spec.nprocPerNode", "gpu",
         "use auto, cpu or a number");
  RefuseEnum(fields, spec.success_policy != SuccessPolicy::kAll, "spec.successPolicy", spec.success_policy,
             "All");
  if (spec.checkpoint) CheckCheckpoint(*spec.checkpoint, fields);
  CheckHealthPolicy(spec.health_policy, fields);
  CheckSchedulingPolicy(spec.scheduling_policy, fields);
  CheckNetworkAndObservability(spec, fields);
  return fields;
}

}  // namespace lockstep::api
