#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/checkpoint/block_sums.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/sha256.h"
#include "runtime/common/base/fields.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kFolderPrefix = "step-";
constexpr std::string_view kShardPrefix = "shard-";
constexpr std::size_t kDigitsOfSha256 = 64;
constexpr std::size_t kDigitsOfAJob = 12;

std::string Padded(int64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

std::string RoundPart(int64_t round) { return ".round-" + std::to_string(round) + "."; }

// The end of the shard's name, after the rank.
std::string EndingOf(const ShardSet& set) {
  const std::string again = set.attempt == 0 ? "" : "again-" + std::to_string(set.attempt) + ".";
  const std::string job = "job-" + Sha256(set.job_uid).substr(0, kDigitsOfAJob);
  return "-of-" + Padded(set.world, 5) + RoundPart(set.round) + again + job + ".safetensors";
}

Error DamagedManifest(const std::string& what) { return {ErrorCode::kDataLoss, "the manifest " + what}; }

bool IsHex(const std::string& text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// There must be one checksum per block, or none at all.
bool HasSoundBlocks(const ShardEntry& shard) {
  if (shard.block_bytes == 0) return shard.block_crc32.empty();
  if (shard.block_bytes < 0) return false;
  const int64_t blocks = (shard.bytes - 1) / shard.block_bytes + 1;
  return static_cast<std::size_t>(blocks) <= shard.block_crc32.size() &&
         IsHex(shard.block_crc32, static_cast<std::size_t>(blocks) * kDigitsOfASum);
}

bool IsWithin(const TensorPlace& tensor, int64_t shard_bytes) {
  return tensor.offset >= 0 && tensor.bytes >= 0 && tensor.offset <= shard_bytes &&
         tensor.bytes <= shard_bytes - tensor.offset;
}

Result<void> CheckTensor(const TensorPlace& tensor, const ShardEntry& shard) {
  if (tensor.name.empty()) return DamagedManifest("has a tensor without a name in " + shard.name);
  if (!IsWithin(tensor, shard.bytes))
    return DamagedManifest("puts a tensor outside of " + shard.name + ": " + tensor.name);
  const auto bytes = ByteCount(tensor.dtype, tensor.shape);
  if (!bytes.ok()) return DamagedManifest("has a bad tensor " + tensor.name + ": " + bytes.error().message);
  if (*bytes != static_cast<uint64_t>(tensor.bytes))
    return DamagedManifest("has a bad tensor " + tensor.name + ": its bytes do not match its shape");
  return {};
}

Result<void> CheckShard(const ShardEntry& shard, std::set<std::string>& names) {
  const bool is_folder = shard.name.empty() || shard.name == "." || shard.name == "..";
  if (is_folder || shard.name.find_first_of("/\\") != std::string::npos) {
    return DamagedManifest("names a bad object: \"" + shard.name + "\"");
  }
  if (!names.insert("shard " + shard.name).second) return DamagedManifest("names " + shard.name + " twice");
  if (shard.bytes <= 0 || !IsHex(shard.sha256, kDigitsOfSha256))
    return DamagedManifest("has no size or SHA-256 of " + shard.name);
  if (!HasSoundBlocks(shard))
    return DamagedManifest("has other blockCrc32 of " + shard.name + " than one for each blockBytes");
  for (const TensorPlace& tensor : shard.tensors) {
    LOCKSTEP_TRY(CheckTensor(tensor, shard));
    if (!names.insert("tensor " + tensor.name).second)
      return DamagedManifest("has the tensor " + tensor.name + " twice");
  }
  return {};
}

Result<void> CheckManifest(const Manifest& manifest) {
  if (manifest.step < 0 || manifest.round < 0) return DamagedManifest("has no step or round");
  if (manifest.world < 1 || static_cast<std::size_t>(manifest.world) != manifest.shards.size()) {
    return DamagedManifest("names " + std::to_string(manifest.shards.size()) + " shards of " +
                           std::to_string(manifest.world));
  }
  std::set<std::string> names;
  for (const ShardEntry& shard : manifest.shards) LOCKSTEP_TRY(CheckShard(shard, names));
  return {};
}

}  // namespace

template <typename A>
void Describe(A& fields, Of<A, TensorPlace>& tensor) {
  fields.Field("name", tensor.name);
  fields.Field("dtype", tensor.dtype);
  fields.Field("shape", tensor.shape);
  fields.Field("offset", tensor.offset);
  fields.Field("bytes", tensor.bytes);
}
template <typename A>
void Describe(A& fields, Of<A, ShardEntry>& shard) {
  fields.Field("name", shard.name);
  fields.Field("bytes", shard.bytes);
  fields.Field("sha256", shard.sha256);
  fields.Field("blockBytes", shard.block_bytes);
  fields.Field("blockCrc32", shard.block_crc32);
  fields.Field("tensors", shard.tensors);
}
template <typename A>
void Describe(A& fields, Of<A, EvaluationRecord>& record) {
  fields.Field("step", record.step);
  fields.Field("newest", record.newest);
  fields.Field("best", record.best);
  fields.Field("withoutImprovement", record.without_improvement);
}
template <typename A>
void Describe(A& fields, Of<A, Manifest>& manifest) {
  fields.Field("formatVersion", manifest.format_version);
  fields.Field("jobUid", manifest.job_uid);
  fields.Field("jobName", manifest.job_name);
  fields.Field("step", manifest.step);
  fields.Field("epoch", manifest.epoch);
  fields.Field("round", manifest.round);
  fields.Field("world", manifest.world);
  fields.Field("strategy", manifest.strategy);
  fields.Field("time", manifest.time);
  fields.Field("evaluations", manifest.evaluations);
  fields.Field("shards", manifest.shards);
}

std::string EncodeManifest(const Manifest& manifest) {
  Json json = MessageToJson(manifest);
  json["training"] = manifest.training;
  return json.dump(2) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok()) return DamagedManifest("is not JSON: " + json.error().message);
  const int64_t version = IntAt(*json, {"formatVersion"}, -1);
  if (version == -1) return DamagedManifest("has no formatVersion");
  if (version != 1) {
    return Error{ErrorCode::kUnsupported,
                 "checkpoint format version " + std::to_string(version) + "; this version reads 1"};
  }
  for (const char* required : {"jobUid", "step", "round", "world", "shards"}) {
    if (FindJson(*json, {required}) == nullptr) return DamagedManifest(std::string("has no ") + required);
  }
  auto manifest = MessageFromJson<Manifest>(*json);
  if (!manifest.ok()) return DamagedManifest("has wrong fields: " + manifest.error().message);
  LOCKSTEP_TRY(CheckManifest(*manifest));
  if (const Json* training = FindJson(*json, {"training"})) manifest->training = *training;
  return manifest;
}

std::string EncodeShardEntry(const ShardEntry& entry) { return DumpJson(MessageToJson(entry)); }

Result<ShardEntry> ParseShardEntry(std::string_view text) {
  LOCKSTEP_TRY(const Json json, ParseJson(text));
  LOCKSTEP_TRY(ShardEntry entry, MessageFromJson<ShardEntry>(json));
  std::set<std::string> names;
  LOCKSTEP_TRY(CheckShard(entry, names));
  return entry;
}

bool IsOfModel(std::string_view tensor) {
  return !tensor.starts_with("optimizer.") && !tensor.starts_with("outer.momentum.") &&
         tensor != "loss_scale";
}

std::string FolderOfStep(int64_t step) { return std::string(kFolderPrefix) + Padded(step, 12); }

int64_t StepOfFolder(std::string_view folder) {
  if (!folder.starts_with(kFolderPrefix)) return -1;
  const std::string_view digits = folder.substr(kFolderPrefix.size());
  int64_t step = -1;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return parsed.ec == std::errc() && step >= 0 && FolderOfStep(step) == folder ? step : -1;
}

std::string ShardName(int rank, const ShardSet& set) {
  return std::string(kShardPrefix) + Padded(rank, 5) + EndingOf(set);
}

bool IsOneOf(const ShardSet& set, std::string_view shard) {
  return shard.starts_with(kShardPrefix) && shard.ends_with(EndingOf(set));
}

bool IsOfRound(std::string_view shard, int64_t round) {
  return shard.find(RoundPart(round)) != std::string_view::npos;
}

}  // namespace lockstep::checkpoint
