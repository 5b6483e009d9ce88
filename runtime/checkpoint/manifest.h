#pragma once
// What a checkpoint is: written last, so a checkpoint exists when its manifest does. The README documents the
// layout for readers of other languages. Plain values, pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/checkpoint/evaluation_record.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::checkpoint {

// Where one tensor lies in its shard, so that a reader can fetch it alone.
struct TensorPlace {
  std::string name;
  std::string dtype;  // as in the safetensors header
  std::vector<int64_t> shape;
  int64_t offset = 0;  // bytes from the start of the object
  int64_t bytes = 0;

  friend bool operator==(const TensorPlace&, const TensorPlace&) = default;
};

struct ShardEntry {
  std::string name;  // object name beside the manifest
  int64_t bytes = 0;
  std::string sha256;  // hex
  std::vector<TensorPlace> tensors;
  int64_t block_bytes = 0;    // of block_sums.h; 0: written by a version that had none
  std::string block_crc32{};  // BlockSums of the object
};

struct Manifest {
  int format_version = 1;
  std::string job_uid;
  std::string job_name;
  int64_t step = 0;
  double epoch = -1;  // passes over the data, in fractions; -1: written by a version that did not say
  int64_t round = 0;
  int world = 1;  // ranks that wrote it
  std::string strategy = "ddp";
  std::string time;  // RFC 3339
  EvaluationRecord evaluations;
  std::vector<ShardEntry> shards;  // every tensor is whole in exactly one of them
  Json training = Json::object();  // spec.training it was made with
};

inline constexpr std::string_view kManifestName = "manifest.json";

[[nodiscard]] std::string EncodeManifest(const Manifest& manifest);
// kDataLoss where it does not parse, lacks something, contradicts itself or names an object outside of its
// folder; kUnsupported for another format version.
[[nodiscard]] Result<Manifest> ParseManifest(std::string_view text);

// What a rank tells rank 0 about its shard.
[[nodiscard]] std::string EncodeShardEntry(const ShardEntry& entry);
[[nodiscard]] Result<ShardEntry> ParseShardEntry(std::string_view text);

// Whether a tensor of this name is the model's: neither optimizer state nor anything else that only training
// needs ("optimizer.…", "outer.momentum.…", "loss_scale").
[[nodiscard]] bool IsOfModel(std::string_view tensor);

// "step-000000000120" and back; -1 for other names.
[[nodiscard]] std::string FolderOfStep(int64_t step);
[[nodiscard]] int64_t StepOfFolder(std::string_view folder);

// The shards of one save: no other save gives its shards their names, of whichever job.
struct ShardSet {
  std::string job_uid;
  int world = 1;
  int64_t round = 0;
  int attempt = 0;  // at the step in this round
};
// "shard-00000-of-00002.round-7.job-1f0c39a5b2d4.safetensors", of a later attempt of this round
// "shard-00000-of-00002.round-7.again-1.job-1f0c39a5b2d4.safetensors"; the job by 12 digits of its uid's
// SHA-256. Earlier versions left the job out.
[[nodiscard]] std::string ShardName(int rank, const ShardSet& set);
// Whether it is the name of one of them, of whichever rank.
[[nodiscard]] bool IsOneOf(const ShardSet& set, std::string_view shard);
[[nodiscard]] bool IsOfRound(std::string_view shard, int64_t round);

}  // namespace lockstep::checkpoint
