#pragma once
// The manifest defines a checkpoint: it is written last, so a checkpoint exists when its manifest does. The
// README documents the layout for readers in other languages. Plain values, pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/evaluation_record.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

// The position of a tensor in its shard, so that a reader can fetch that tensor alone.
struct TensorPlace {
  std::string name;
  std::string dtype;  // as in the safetensors header
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the object
  int64_t bytes = 0;

  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

struct ShardEntry {
  std::string name;  // object name in the manifest's folder
  int64_t bytes = 0;
  std::string sha256;  // hex
  std::vector<TensorPlace> tensors;
  int64_t block_bytes = 0;    // of block_sums.h; 0: written by a version without block sums
  std::string block_crc32{};  // BlockSums of the object
};

struct Manifest {
  int format_version = 1;
  std::string job_uid;
  std::string job_name;
  int64_t step = 0;
  double epoch = -1;  // passes over the data, in fractions; -1: written by a version without this field
  int64_t round = 0;
  int world = 1;  // number of ranks that wrote it
  std::string strategy = "ddp";
  std::string time;  // RFC 3339
  EvaluationRecord evaluations;
  std::vector<ShardEntry> shards;  // every tensor is complete in exactly one shard
  Json training = Json::object();  // spec.training of the job that wrote it
};

inline constexpr std::string_view kManifestName = "manifest.json";

[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// kDataLoss if the text does not parse, lacks a field, contradicts itself or names an object outside of its
// folder. kUnsupported for another format version.
[[nodiscard]] Result<Manifest> ParseManifest(std::string_view text);

// What a rank reports to rank 0 about its shard.
[[nodiscard]] std::string EncodeShardEntry(const ShardEntry& entry);
[[nodiscard]] Result<ShardEntry> ParseShardEntry(std::string_view text);

// Whether a tensor of this name belongs to the model, and not to the optimizer or to other state that only
// training needs ("optimizer.…", "outer.momentum.…", "loss_scale").
[[nodiscard]] bool IsOfModel(std::string_view tensor);
// Tensors with this prefix and the name of a parameter have the moving average of the parameter minus the
// parameter (spec.training.optimizer.weightAverage).
inline constexpr std::string_view kAveragePrefix = "optimizer.average_minus_weight.";
[[nodiscard]] constexpr bool IsOfAverage(std::string_view tensor) {
  return tensor.starts_with(kAveragePrefix);
}

// "step-000000000120" and back; -1 for other names.
[[nodiscard]] std::string FolderOfStep(int64_t step);
[[nodiscard]] int64_t StepOfFolder(std::string_view folder);

// The shards of one save. Shard names are unique to a save, across all jobs.
struct ShardSet {
  std::string job_uid;
  int world = 1;
  int64_t round = 0;
  int attempt = 0;  // at this step in this round
};
// "shard-00000-of-00002.round-7.job-1f0c39a5b2d4.safetensors"; for a later attempt in this round
// "shard-00000-of-00002.round-7.again-1.job-1f0c39a5b2d4.safetensors". The job is identified by 12 digits of
// the SHA-256 of its uid. Earlier versions omitted the job.
[[nodiscard]] std::string ShardName(int rank, const ShardSet& set);
// Whether it is the name of a shard of this set, of any rank.
[[nodiscard]] bool IsOneOf(const ShardSet& set, std::string_view shard);
[[nodiscard]] bool IsOfRound(std::string_view shard, int64_t round);

}  // namespace lockstep::checkpoint
