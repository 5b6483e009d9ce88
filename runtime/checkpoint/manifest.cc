#include "runtime/checkpoint/manifest.h"

#include <charconv>

#include "runtime/common/protocol/fields.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::string_view kFolderPrefix = "step-";

std::string Padded(int64_t number, std::size_t width) {
  std::string digits = std::to_string(number);
  if (digits.size() < width) digits.insert(0, width - digits.size(), '0');
  return digits;
}

}  // namespace

template <class V>
void Visit(ShardEntry& m, V& v) {
  v("name", m.name);
  v("bytes", m.bytes);
  v("sha256", m.sha256);
}
template <class V>
void Visit(Manifest& m, V& v) {
  v("formatVersion", m.format_version);
  v("jobUid", m.job_uid);
  v("jobName", m.job_name);
  v("step", m.step);
  v("round", m.round);
  v("world", m.world);
  v("strategy", m.strategy);
  v("time", m.time);
  v("shards", m.shards);
}

std::string EncodeManifest(const Manifest& manifest) {
  Json json = protocol::MessageToJson(manifest);
  json["training"] = manifest.training;
  return json.dump(2) + "\n";
}

Result<Manifest> ParseManifest(std::string_view text) {
  const auto json = ParseJson(text);
  if (!json.ok()) return Error{ErrorCode::kDataLoss, json.error().message};
  auto manifest = protocol::MessageFromJson<Manifest>(*json);
  if (!manifest.ok()) return Error{ErrorCode::kDataLoss, manifest.error().message};
  if (manifest->format_version != 1) {
    return Error{
        ErrorCode::kUnsupported,
        "checkpoint format version " + std::to_string(manifest->format_version) + "; this version reads 1"};
  }
  if (manifest->shards.empty()) return Error{ErrorCode::kDataLoss, "the manifest names no shards"};
  for (const ShardEntry& shard : manifest->shards) {
    if (shard.name.empty() || shard.name.find('/') != std::string::npos || shard.bytes < 0) {
      return Error{ErrorCode::kDataLoss, "the manifest names a bad object: \"" + shard.name + "\""};
    }
  }
  if (const Json* training = FindJson(*json, {"training"})) manifest->training = *training;
  return manifest;
}

std::string FolderOfStep(int64_t step) { return std::string(kFolderPrefix) + Padded(step, 12); }

int64_t StepOfFolder(std::string_view folder) {
  if (!folder.starts_with(kFolderPrefix)) return -1;
  folder.remove_prefix(kFolderPrefix.size());
  int64_t step = -1;
  const auto parsed = std::from_chars(folder.data(), folder.data() + folder.size(), step);
  return parsed.ec == std::errc() && parsed.ptr == folder.data() + folder.size() ? step : -1;
}

std::string ShardName(int rank, int world, int64_t round) {
  return "shard-" + Padded(rank, 5) + "-of-" + Padded(world, 5) + ".round-" + std::to_string(round) +
         ".safetensors";
}

}  // namespace lockstep::checkpoint
