#pragma once
// spec.training: what the default runtime trains, as plain values with the defaults of the CRD. Parsed by the
// operator, the command line and every rank (from its configuration file). Values, any thread.
//
// A value that parses may still be invalid: see validate.h.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/enum_text.h"
#include "runtime/common/base/json.h"

namespace lockstep::api {

// Other folders write api::NameOf(spec.strategy).
using lockstep::NameOf;

enum class ModelName { kMlp, kCnn, kResnet18, kResnet50, kGpt, kTorchscript, kPlugin };
enum class TorchscriptLoss { kCrossEntropy, kMeanSquaredError };
enum class DataFormat { kIdx, kCsv, kNpy, kImageFolder, kTokens, kSynthetic, kPlugin };
enum class SamplerName { kUniform, kWeighted };
enum class OnCorruptRecord { kFail, kSkip };
enum class OptimizerName { kSgd, kAdam, kAdamw, kLamb, kMuon };
enum class WeightDecayOn { kAll, kMatrices };
enum class ScheduleName { kConstant, kStep, kCosine, kPolynomial };
enum class Precision { kFp32, kBf16, kFp16 };
enum class Determinism { kNone, kWorld };
enum class Balance { kEqual, kSpeed };
enum class Strategy {
  kDdp,
  kZero1,
  kFsdp,
  kPipeline,
  kHybrid,
  kDataparallel,
  kModelparallel,
  kLocalsgd,
  kAsync
};
enum class Compression { kFp16, kBf16 };
enum class EarlyStopMetric { kLoss, kAccuracy };

// Fully connected layers with ReLU between them; inputs are flattened, the output has one value per class.
struct MlpSpec {
  std::vector<int64_t> hidden_sizes = {128};
};

// For each entry of `channels`: 3x3 convolution (padding 1), ReLU, 2x2 max-pooling. Then one hidden layer
// with ReLU and dropout, then one value per class.
struct CnnSpec {
  std::vector<int64_t> channels = {32, 64};
  int64_t hidden_size = 128;
  double dropout = 0.25;
};

struct ResnetSpec {
  bool small_images = false;  // 3x3 stem without pooling, for images of about 32x32
};

struct GptSpec {
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t embedding_size = 768;
  int64_t context_length = 1024;
  int64_t vocabulary_size = 50304;
  double dropout = 0.0;
};

struct TorchscriptSpec {
  std::string path;
  TorchscriptLoss loss = TorchscriptLoss::kCrossEntropy;
};

struct PluginSpec {
  std::string path;
  std::string name;
  std::map<std::string, std::string> options;
};

// `name` selects the model; the section of that name has its settings. resnet18 and resnet50 share `resnet`.
struct ModelSpec {
  ModelName name = ModelName::kMlp;
  MlpSpec mlp;
  CnnSpec cnn;
  ResnetSpec resnet;
  GptSpec gpt;
  std::optional<TorchscriptSpec> torchscript;
  std::optional<PluginSpec> plugin;
};

// Random samples made from the seed, for tests and measurements. They can be learnt, because the label is a
// function of the sample.
struct SyntheticSpec {
  int64_t samples = 4096;
  int64_t test_samples = 512;
  std::vector<int64_t> shape = {1, 28, 28};
  int64_t classes = 10;
};

struct CsvSpec {
  std::string label_column;
  bool header = true;
  std::string delimiter = ",";
};

struct ImageFolderSpec {
  int64_t image_size = 224;
};

struct AugmentationSpec {
  bool horizontal_flip = false;
  int64_t crop_padding = 0;  // pad by so many pixels on each side, then crop back at a random position
};

// idx: `path` is a folder with train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each plain or with ".gz".
struct DataSpec {
  DataFormat format = DataFormat::kSynthetic;
  std::string path;  // required for each format except synthetic and plugin; a folder, or s3://bucket/folder
  std::optional<SecretReference> secret_ref;  // remote data; absent: the environment of the container
  std::string cache;                          // remote data; empty: kDataCacheFolder
  bool shuffle = true;
  bool drop_last = false;  // skip the samples of an epoch that do not fill a global batch
  SamplerName sampler = SamplerName::kUniform;
  std::vector<double> class_weights;  // Weighted: relative frequency of each class; empty: equal
  OnCorruptRecord on_corrupt_record = OnCorruptRecord::kFail;
  int32_t workers = 1;   // loader threads per rank
  int32_t prefetch = 2;  // micro-batches prepared ahead
  SyntheticSpec synthetic;
  CsvSpec csv;
  ImageFolderSpec image_folder;
  std::optional<PluginSpec> plugin;
  AugmentationSpec augmentation;
};

// Where copies of remote data are stored unless the job names a folder: an emptyDir of its pod.
inline constexpr const char* kDataCacheFolder = "/var/cache/lockstep/data";
// Prefix of the variables from the data's Secret, because the Secret of the checkpoints may have the same
// keys.
inline constexpr const char* kDataVariablePrefix = "LOCKSTEP_DATA_";

[[nodiscard]] bool IsRemote(const DataSpec& spec);
// "bucket/folder" of a remote path.
[[nodiscard]] std::string RemotePath(const DataSpec& spec);

// What is different for the parameters whose names match one of the patterns, in which * stands for any
// characters, ? for one and [ab] for one of these.
struct ParameterGroupSpec {
  std::vector<std::string> match;
  std::optional<double> weight_decay;  // absent: as for parameters in no group
  double learning_rate_scale = 1.0;    // times the learning rate of the step
  bool frozen = false;                 // not trained
  bool use_muon = true;                // muon; false: these parameters are updated as by adamw
};

// An exponential moving average of the weights, which evaluations use. After each step that changes the weights
// the average becomes decay * average + (1 - decay) * weights; it begins as the initial weights.
struct WeightAverageSpec {
  double decay = 0.999;
};

struct OptimizerSpec {
  OptimizerName name = OptimizerName::kAdamw;
  double learning_rate = 0.001;
  double momentum = 0.0;                                // sgd, muon
  bool nesterov = false;                                // sgd, muon
  double weight_decay = 0.0;                            // sgd, adam: added to the gradient; else decoupled
  WeightDecayOn weight_decay_on = WeightDecayOn::kAll;  // Matrices: parameters of two or more dimensions
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<double> clip_norm;                  // bound of the global gradient norm; absent: no clipping
  std::vector<ParameterGroupSpec> groups;           // the first that matches a parameter applies
  std::optional<WeightAverageSpec> weight_average;  // absent: none
};

// Updates each element from its own gradient and state alone, so that a parameter may be divided.
[[nodiscard]] constexpr bool IsElementwise(OptimizerName name) {
  return name != OptimizerName::kLamb && name != OptimizerName::kMuon;
}

// The learning rate at a step: linear warm-up from 0 over warmup_steps, then
//   constant    unchanged
//   step        times decay_factor after every decay_every_steps (counted from the end of the warm-up)
//   cosine      half a cosine down to min_learning_rate at the last step
//   polynomial  (1 - t)^power down to min_learning_rate at the last step
//
// base_batch_size, if set, is the global batch that optimizer.learning_rate is meant for: the rate is
// multiplied by global_batch_size / base_batch_size (the linear scaling rule of Goyal et al. 2017).
struct ScheduleSpec {
  ScheduleName name = ScheduleName::kConstant;
  std::optional<int64_t> base_batch_size;
  int64_t warmup_steps = 0;
  std::optional<int64_t> decay_every_steps;
  double decay_factor = 0.1;
  double min_learning_rate = 0.0;
  double power = 1.0;
};

// DiLoCo's outer step: Nesterov momentum with the change over a window as the gradient.
struct OuterSpec {
  double learning_rate = 0.7;
  double momentum = 0.9;
};

struct SyncSpec {
  int64_t every_steps = 1;                 // localsgd: steps between two averages
  std::optional<OuterSpec> outer;          // localsgd and async; absent: plain average
  int64_t staleness = 16;                  // async: steps between two averages
  std::optional<Compression> compression;  // of gradients; absent: none
};

// A rank has only a part of what a step changes.
[[nodiscard]] constexpr bool DividesState(Strategy strategy) {
  return strategy == Strategy::kZero1 || strategy == Strategy::kFsdp || strategy == Strategy::kPipeline ||
         strategy == Strategy::kHybrid;
}

// The layers of the model are placed on different ranks.
[[nodiscard]] constexpr bool DividesLayers(Strategy strategy) {
  return strategy == Strategy::kPipeline || strategy == Strategy::kHybrid;
}

// A single process uses all devices that it sees.
[[nodiscard]] constexpr bool TakesAllDevices(Strategy strategy) {
  return strategy == Strategy::kDataparallel || strategy == Strategy::kModelparallel;
}

struct PipelineSpec {
  std::optional<int32_t> stages;  // of each pipeline of hybrid; absent: 2
  int64_t copy_every_steps = 0;   // copy each stage to host memory, here and on a neighbour; 0: never
};

struct Zero1Spec {
  int32_t copies = 1;  // ranks that keep each part of the optimizer's state
};

struct FsdpSpec {
  int32_t copies = 1;                     // ranks that keep each part of the state
  std::optional<int32_t> sharding_group;  // ranks that have the whole state together; absent: all
  bool cpu_offload = false;               // the state is in host memory, not on the device
};

// Evaluates the whole test set, each sample once, after every `every_epochs` epochs and at the end.
struct EvaluationSpec {
  int32_t every_epochs = 1;
  int64_t batch_size = 256;
};

// Ends the training successfully when `metric` of an evaluation reaches `target`, or has not improved by
// `min_delta` over `patience` evaluations.
struct EarlyStopSpec {
  EarlyStopMetric metric = EarlyStopMetric::kAccuracy;
  std::optional<double> target;
  std::optional<int32_t> patience;
  double min_delta = 0.0;
};

struct TrainingSpec {
  ModelSpec model;
  DataSpec data;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  int64_t global_batch_size = 0;            // required: all samples of one step over all ranks
  std::optional<int64_t> micro_batch_size;  // absent: a rank processes its share of the global batch at once
  std::optional<int64_t> epochs;            // exactly one of epochs and steps
  std::optional<int64_t> steps;
  Precision precision = Precision::kFp32;
  bool tf32 = false;        // GPUs may round the inputs of float32 products to 10 bits of mantissa
  bool cuda_graph = false;  // record the passes of a step once and replay them; no effect on CPUs
  bool gradient_checkpointing = false;  // compute each layer again in the backward pass, to save memory
  Determinism determinism = Determinism::kNone;
  Balance balance = Balance::kEqual;
  Strategy strategy = Strategy::kDdp;
  SyncSpec sync;
  PipelineSpec pipeline;
  Zero1Spec zero1;
  FsdpSpec fsdp;
  int64_t seed = 0;
  std::optional<EvaluationSpec> evaluation;  // absent: none
  std::optional<EarlyStopSpec> early_stop;
};

// optimizer.learningRate, scaled to the global batch if the schedule has a base batch size. Requires
// global_batch_size > 0.
[[nodiscard]] double BaseLearningRate(const TrainingSpec& spec);

// Reads the section at `path` ("spec.training"). Appends all violations, each beginning with the path of its
// field. Without violations the result is well-formed; ValidateTraining (validate_training.h) checks whether
// it is valid.
[[nodiscard]] TrainingSpec TrainingSpecFromJson(const Json& json, const std::string& path,
                                                std::vector<std::string>& violations);
// With every default written out.
[[nodiscard]] Json TrainingSpecToJson(const TrainingSpec& spec);

[[nodiscard]] constexpr auto WordsOf(ModelName) {
  return std::to_array<std::string_view>(
      {"mlp", "cnn", "resnet18", "resnet50", "gpt", "torchscript", "plugin"});
}
[[nodiscard]] constexpr auto WordsOf(TorchscriptLoss) {
  return std::to_array<std::string_view>({"crossEntropy", "meanSquaredError"});
}
[[nodiscard]] constexpr auto WordsOf(DataFormat) {
  return std::to_array<std::string_view>(
      {"idx", "csv", "npy", "imageFolder", "tokens", "synthetic", "plugin"});
}
[[nodiscard]] constexpr auto WordsOf(SamplerName) {
  return std::to_array<std::string_view>({"Uniform", "Weighted"});
}
[[nodiscard]] constexpr auto WordsOf(OnCorruptRecord) {
  return std::to_array<std::string_view>({"Fail", "Skip"});
}
[[nodiscard]] constexpr auto WordsOf(OptimizerName) {
  return std::to_array<std::string_view>({"sgd", "adam", "adamw", "lamb", "muon"});
}
[[nodiscard]] constexpr auto WordsOf(WeightDecayOn) {
  return std::to_array<std::string_view>({"All", "Matrices"});
}
[[nodiscard]] constexpr auto WordsOf(ScheduleName) {
  return std::to_array<std::string_view>({"constant", "step", "cosine", "polynomial"});
}
[[nodiscard]] constexpr auto WordsOf(Precision) {
  return std::to_array<std::string_view>({"fp32", "bf16", "fp16"});
}
[[nodiscard]] constexpr auto WordsOf(Determinism) {
  return std::to_array<std::string_view>({"None", "World"});
}
[[nodiscard]] constexpr auto WordsOf(Balance) { return std::to_array<std::string_view>({"Equal", "Speed"}); }
[[nodiscard]] constexpr auto WordsOf(Strategy) {
  return std::to_array<std::string_view>(
      {"ddp", "zero1", "fsdp", "pipeline", "hybrid", "dataparallel", "modelparallel", "localsgd", "async"});
}
[[nodiscard]] constexpr auto WordsOf(Compression) {
  return std::to_array<std::string_view>({"fp16", "bf16"});
}
[[nodiscard]] constexpr auto WordsOf(EarlyStopMetric) {
  return std::to_array<std::string_view>({"loss", "accuracy"});
}

}  // namespace lockstep::api
