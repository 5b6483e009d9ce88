#pragma once
// The fields of spec.training with their limits; see fields.h.

#include "runtime/common/api/checkpoint_spec_fields.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/fields.h"

namespace lockstep::api {

inline constexpr double kMaxInteger = 9007199254740991;  // 2^53 - 1: exact in every JSON reader

template <typename A>
void Describe(A& fields, Of<A, MlpSpec>& spec) {
  fields.Field("hiddenSizes", spec.hidden_sizes, {.min = 1, .max = 65536, .max_items = 32});
}

template <typename A>
void Describe(A& fields, Of<A, CnnSpec>& spec) {
  fields.Field("channels", spec.channels, {.min = 1, .max = 4096, .min_items = 1, .max_items = 8});
  fields.Field("hiddenSize", spec.hidden_size, {.min = 1, .max = 65536});
  fields.Field("dropout", spec.dropout, {.min = 0, .max = 0.99});
}

template <typename A>
void Describe(A& fields, Of<A, ResnetSpec>& spec) {
  fields.Field("smallImages", spec.small_images);
}

template <typename A>
void Describe(A& fields, Of<A, GptSpec>& spec) {
  fields.Field("layers", spec.layers, {.min = 1, .max = 1024});
  fields.Field("heads", spec.heads, {.min = 1, .max = 1024});
  fields.Field("embeddingSize", spec.embedding_size, {.min = 1, .max = 65536});
  fields.Field("contextLength", spec.context_length, {.min = 1, .max = 1048576});
  fields.Field("vocabularySize", spec.vocabulary_size, {.min = 2, .max = 1048576});
  fields.Field("dropout", spec.dropout, {.min = 0, .max = 0.99});
}

template <typename A>
void Describe(A& fields, Of<A, TorchscriptSpec>& spec) {
  fields.Required("path", spec.path, {.max_length = 1024});
  fields.Field("loss", spec.loss);
}

template <typename A>
void Describe(A& fields, Of<A, PluginSpec>& spec) {
  fields.Required("path", spec.path, {.max_length = 1024});
  fields.Required("name", spec.name, {.max_length = 253});
  fields.Field("options", spec.options, {.max_items = 64, .max_length = 1024});
}

template <typename A>
void Describe(A& fields, Of<A, ModelSpec>& spec) {
  fields.Required("name", spec.name);
  fields.Section("mlp", spec.mlp, spec.name == ModelName::kMlp, "name is mlp");
  fields.Section("cnn", spec.cnn, spec.name == ModelName::kCnn, "name is cnn");
  fields.Section("resnet", spec.resnet,
                 spec.name == ModelName::kResnet18 || spec.name == ModelName::kResnet50,
                 "name is resnet18 or resnet50");
  fields.Section("gpt", spec.gpt, spec.name == ModelName::kGpt, "name is gpt");
  fields.Section("torchscript", spec.torchscript, spec.name == ModelName::kTorchscript,
                 "name is torchscript");
  fields.Section("plugin", spec.plugin, spec.name == ModelName::kPlugin, "name is plugin");
}

template <typename A>
void Describe(A& fields, Of<A, SyntheticSpec>& spec) {
  fields.Field("samples", spec.samples, {.min = 1, .max = 1e9});
  fields.Field("testSamples", spec.test_samples, {.min = 0, .max = 1e9});
  fields.Field("shape", spec.shape, {.min = 1, .max = 65536, .min_items = 1, .max_items = 4});
  fields.Field("classes", spec.classes, {.min = 2, .max = 1048576});
}

template <typename A>
void Describe(A& fields, Of<A, CsvSpec>& spec) {
  fields.Required("labelColumn", spec.label_column, {.max_length = 253});
  fields.Field("header", spec.header);
  fields.Field("delimiter", spec.delimiter, {.max_length = 1});
}

template <typename A>
void Describe(A& fields, Of<A, ImageFolderSpec>& spec) {
  fields.Field("imageSize", spec.image_size, {.min = 1, .max = 8192});
}

template <typename A>
void Describe(A& fields, Of<A, AugmentationSpec>& spec) {
  fields.Field("horizontalFlip", spec.horizontal_flip);
  fields.Field("cropPadding", spec.crop_padding, {.min = 0, .max = 1024});
}

template <typename A>
void Describe(A& fields, Of<A, DataSpec>& spec) {
  fields.Required("format", spec.format);
  fields.Field("path", spec.path, {.max_length = 1024});
  fields.Field("secretRef", spec.secret_ref);
  fields.Field("cache", spec.cache, {.max_length = 1024});
  fields.Field("shuffle", spec.shuffle);
  fields.Field("dropLast", spec.drop_last);
  fields.Field("sampler", spec.sampler);
  fields.Field("classWeights", spec.class_weights,
               {.min = 0, .max = 1e9, .min_items = 1, .max_items = 65536});
  fields.Field("onCorruptRecord", spec.on_corrupt_record);
  fields.Field("workers", spec.workers, {.min = 0, .max = 256});
  fields.Field("prefetch", spec.prefetch, {.min = 1, .max = 256});
  fields.Section("synthetic", spec.synthetic, spec.format == DataFormat::kSynthetic, "format is synthetic");
  fields.Section("csv", spec.csv, spec.format == DataFormat::kCsv, "format is csv");
  fields.Section("imageFolder", spec.image_folder, spec.format == DataFormat::kImageFolder,
                 "format is imageFolder");
  fields.Section("plugin", spec.plugin, spec.format == DataFormat::kPlugin, "format is plugin");
  fields.Field("augmentation", spec.augmentation);
}

template <typename A>
void Describe(A& fields, Of<A, ParameterGroupSpec>& spec) {
  fields.Required("match", spec.match, {.min_items = 1, .max_items = 64, .max_length = 253});
  fields.Field("weightDecay", spec.weight_decay, {.min = 0, .max = 1000});
  fields.Field("learningRateScale", spec.learning_rate_scale, {.above = 0, .max = 1000});
  fields.Field("frozen", spec.frozen);
  fields.Field("useMuon", spec.use_muon);
}

template <typename A>
void Describe(A& fields, Of<A, WeightAverageSpec>& spec) {
  fields.Field("decay", spec.decay, {.above = 0, .max = 0.999999});
}

template <typename A>
void Describe(A& fields, Of<A, OptimizerSpec>& spec) {
  fields.Field("name", spec.name);
  fields.Field("learningRate", spec.learning_rate, {.above = 0, .max = 1000});
  fields.Field("momentum", spec.momentum, {.min = 0, .max = 0.9999});
  fields.Field("nesterov", spec.nesterov);
  fields.Field("weightDecay", spec.weight_decay, {.min = 0, .max = 1000});
  fields.Field("weightDecayOn", spec.weight_decay_on);
  fields.Field("beta1", spec.beta1, {.min = 0, .max = 0.999999});
  fields.Field("beta2", spec.beta2, {.min = 0, .max = 0.999999});
  fields.Field("epsilon", spec.epsilon, {.above = 0, .max = 1});
  fields.Field("clipNorm", spec.clip_norm, {.above = 0, .max = 1e6});
  fields.Field("groups", spec.groups, {.max_items = 32});
  fields.Field("weightAverage", spec.weight_average);
}

template <typename A>
void Describe(A& fields, Of<A, ScheduleSpec>& spec) {
  fields.Field("name", spec.name);
  fields.Field("baseBatchSize", spec.base_batch_size, {.min = 1, .max = 16777216});
  fields.Field("warmupSteps", spec.warmup_steps, {.min = 0, .max = 1e9});
  fields.Field("decayEverySteps", spec.decay_every_steps, {.min = 1, .max = 1e9});
  fields.Field("decayFactor", spec.decay_factor, {.above = 0, .max = 1});
  fields.Field("minLearningRate", spec.min_learning_rate, {.min = 0, .max = 1000});
  fields.Field("power", spec.power, {.above = 0, .max = 100});
}

template <typename A>
void Describe(A& fields, Of<A, OuterSpec>& spec) {
  fields.Field("learningRate", spec.learning_rate, {.above = 0, .max = 10});
  fields.Field("momentum", spec.momentum, {.min = 0, .max = 0.9999});
}

template <typename A>
void Describe(A& fields, Of<A, SyncSpec>& spec) {
  fields.Field("everySteps", spec.every_steps, {.min = 1, .max = 1e6});
  fields.Field("outer", spec.outer);
  fields.Field("staleness", spec.staleness, {.min = 1, .max = 1024});
  fields.Field("compression", spec.compression);
}

template <typename A>
void Describe(A& fields, Of<A, Zero1Spec>& spec) {
  fields.Field("copies", spec.copies, {.min = 1, .max = 4});
}

template <typename A>
void Describe(A& fields, Of<A, FsdpSpec>& spec) {
  fields.Field("copies", spec.copies, {.min = 1, .max = 4});
  fields.Field("shardingGroup", spec.sharding_group, {.min = 2, .max = 65536});
  fields.Field("cpuOffload", spec.cpu_offload);
}

template <typename A>
void Describe(A& fields, Of<A, PipelineSpec>& spec) {
  fields.Field("stages", spec.stages, {.min = 2, .max = 1024});
  fields.Field("copyEverySteps", spec.copy_every_steps, {.min = 0, .max = 1e6});
}

template <typename A>
void Describe(A& fields, Of<A, EvaluationSpec>& spec) {
  fields.Field("everyEpochs", spec.every_epochs, {.min = 1, .max = 1e6});
  fields.Field("batchSize", spec.batch_size, {.min = 1, .max = 1048576});
}

template <typename A>
void Describe(A& fields, Of<A, EarlyStopSpec>& spec) {
  fields.Field("metric", spec.metric);
  fields.Field("target", spec.target, {.min = 0, .max = 1e9});
  fields.Field("patience", spec.patience, {.min = 1, .max = 1e6});
  fields.Field("minDelta", spec.min_delta, {.min = 0, .max = 1e9});
}

template <typename A>
void Describe(A& fields, Of<A, TrainingSpec>& spec) {
  fields.Required("model", spec.model);
  fields.Required("data", spec.data);
  fields.Field("optimizer", spec.optimizer);
  fields.Field("schedule", spec.schedule);
  fields.Required("globalBatchSize", spec.global_batch_size, {.min = 1, .max = 16777216});
  fields.Field("microBatchSize", spec.micro_batch_size, {.min = 1, .max = 16777216});
  fields.Field("epochs", spec.epochs, {.min = 1, .max = 1e6});
  fields.Field("steps", spec.steps, {.min = 1, .max = 1e9});
  fields.Field("precision", spec.precision);
  fields.Field("tf32", spec.tf32);
  fields.Field("cudaGraph", spec.cuda_graph);
  fields.Field("gradientCheckpointing", spec.gradient_checkpointing);
  fields.Field("determinism", spec.determinism);
  fields.Field("balance", spec.balance);
  fields.Field("strategy", spec.strategy);
  fields.Field("sync", spec.sync);
  fields.Section("pipeline", spec.pipeline, DividesLayers(spec.strategy), "strategy is pipeline or hybrid");
  fields.Section("zero1", spec.zero1, spec.strategy == Strategy::kZero1, "strategy is zero1");
  fields.Section("fsdp", spec.fsdp, spec.strategy == Strategy::kFsdp, "strategy is fsdp");
  fields.Field("seed", spec.seed, {.min = 0, .max = kMaxInteger});
  fields.Field("evaluation", spec.evaluation);
  fields.Field("earlyStop", spec.early_stop);
}

}  // namespace lockstep::api
