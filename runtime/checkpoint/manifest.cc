#include "runtime/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "runtime/common/protocol/fields.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kFolderPrefix = "step-";

std::string Padded(int64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

std::string RoundPart(int64_t round) { return ".round-" + std::to_string(round) + "."; }

Error Damaged(const std::string& what) { return {ErrorCode::kDataLoss, "the manifest " + what}; }

bool IsSha256(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool IsSound(const TensorPlace& tensor, int64_t shard_bytes) {
  return !tensor.name.empty() && !tensor.dtype.empty() && tensor.offset >= 0 && tensor.bytes >= 0 &&
         tensor.offset <= shard_bytes && tensor.bytes <= shard_bytes - tensor.offset &&
         std::all_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t extent) { return extent >= 0; });
}

Result<void> CheckShard(const ShardEntry& shard, std::set<std::string>& names) {
  const bool is_folder = shard.name.empty() || shard.name == "." || shard.name == "..";
  if (is_folder || shard.name.find_first_of("/\\") != std::string::npos) {
    return Damaged("names a bad object: \"" + shard.name + "\"");
  }
  if (!names.insert("shard " + shard.name).second) return Damaged("names " + shard.name + " twice");
  if (shard.bytes <= 0 || !IsSha256(shard.sha256)) return Damaged("has no size or SHA-256 of " + shard.name);
  for (const TensorPlace& tensor : shard.tensors) {
    if (!IsSound(tensor, shard.bytes))
      return Damaged("puts a tensor outside of " + shard.name + ": " + tensor.name);
    if (!names.insert("tensor " + tensor.name).second)
      return Damaged("has the tensor " + tensor.name + " twice");
  }
  return {};
}

Result<void> CheckManifest(const Manifest& manifest) {
  if (manifest.step < 0 || manifest.round < 0) return Damaged("has no step or round");
  if (manifest.world < 1 || static_cast<std::size_t>(manifest.world) != manifest.shards.size()) {
    return Damaged("names " + std::to_string(manifest.shards.size()) + " shards of " +
                   std::to_string(manifest.world));
  }
  std::set<std::string> names;
  for (const ShardEntry& shard : manifest.shards) LOCKSTEP_TRY(CheckShard(shard, names));
  return {};
}

}  // namespace

template <class V>
void Visit(TensorPlace& m, V& v) {
  v("name", m.name);
  v("dtype", m.dtype);
  v("shape", m.shape);
  v("offset", m.offset);
  v("bytes", m.bytes);
}
template <class V>
void Visit(ShardEntry& m, V& v) {
  v("name", m.name);
  v("bytes", m.bytes);
  v("sha256", m.sha256);
  v("tensors", m.tensors);
}
template <class V>
void Visit(EvaluationRecord& m, V& v) {
  v("step", m.step);
  v("newest", m.newest);
  v("best", m.best);
  v("withoutImprovement", m.without_improvement);
}
template <class V>
void Visit(Manifest& m, V& v) {
  v("formatVersion", m.format_version);
  v("jobUid", m.job_uid);
  v("jobName", m.job_name);
  v("step", m.step);
  v("epoch", m.epoch);
  v("round", m.round);
  v("world", m.world);
  v("strategy", m.strategy);
  v("time", m.time);
  v("evaluations", m.evaluations);
  v("shards", m.shards);
}

std::string EncodeManifest(const Manifest& manifest) {
  Json json = protocol::MessageToJson(manifest);
  json["training"] = manifest.training;
  return json.dump(2) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok()) return Damaged("is no JSON: " + json.error().message);
  const int64_t version = IntAt(*json, {"formatVersion"}, -1);
  if (version == -1) return Damaged("has no formatVersion");
  if (version != 1) {
    return Error{ErrorCode::kUnsupported,
                 "checkpoint format version " + std::to_string(version) + "; this version reads 1"};
  }
  for (const char* required : {"jobUid", "step", "round", "world", "shards"}) {
    if (FindJson(*json, {required}) == nullptr) return Damaged(std::string("has no ") + required);
  }
  auto manifest = protocol::MessageFromJson<Manifest>(*json);
  if (!manifest.ok()) return Damaged("has wrong fields: " + manifest.error().message);
  LOCKSTEP_TRY(CheckManifest(*manifest));
  if (const Json* training = FindJson(*json, {"training"})) manifest->training = *training;
  return manifest;
}

std::string EncodeShardEntry(const ShardEntry& entry) { return DumpJson(protocol::MessageToJson(entry)); }

Result<ShardEntry> ParseShardEntry(std::string_view text) {
  LOCKSTEP_TRY(const Json json, ParseJson(text));
  LOCKSTEP_TRY(ShardEntry entry, protocol::MessageFromJson<ShardEntry>(json));
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

std::string ShardName(int rank, int world, int64_t round) {
  return "shard-" + Padded(rank, 5) + "-of-" + Padded(world, 5) + RoundPart(round) + "safetensors";
}

bool IsOfRound(std::string_view shard, int64_t round) {
  return shard.find(RoundPart(round)) != std::string_view::npos;
}

}  // namespace lockstep::checkpoint
