#include "runtime/tools/checkpoint_tool/selection.h"

#include <algorithm>

namespace lockstep::checkpoint_tool {

using checkpoint::StoredStep;

Error NoCheckpoints(const Place& place) {
  return {ErrorCode::kNotFound,
          "there is no checkpoint below " + place.uri + "; name what the job has as spec.checkpoint.uri"};
}

Result<StoredStep> FindStep(const Place& place, const std::vector<StoredStep>& steps, int64_t step) {
  const auto found =
      std::find_if(steps.begin(), steps.end(), [&](const StoredStep& stored) { return stored.step == step; });
  if (found != steps.end()) return *found;
  return Error{ErrorCode::kNotFound, "there is no step " + std::to_string(step) + " below " + place.uri +
                                         "; `lockstep checkpoint ls` shows what there is"};
}

Result<StoredStep> FindCheckpoint(const Place& place, std::optional<int64_t> step) {
  LOCKSTEP_TRY(const std::vector<StoredStep> steps, checkpoint::ListSteps(place.store));
  if (!step) {
    const auto newest = std::find_if(steps.begin(), steps.end(),
                                     [](const StoredStep& stored) { return stored.has_manifest; });
    if (newest == steps.end()) return NoCheckpoints(place);
    return *newest;
  }
  LOCKSTEP_TRY(StoredStep stored, FindStep(place, steps, *step));
  if (stored.has_manifest) return stored;
  return Error{ErrorCode::kNotFound,
               "step " + std::to_string(*step) + " below " + place.uri + " has no " +
                   std::string(checkpoint::kManifestName) +
                   ", so it is no checkpoint: its save is under way, or was broken off"};
}

Result<std::vector<std::string>> FindDamage(const Place& place, const StoredStep& stored) {
  std::vector<std::string> damage;
  const auto manifest = checkpoint::ReadManifest(place.store, stored.step);
  if (!manifest.ok()) {
    if (!checkpoint::IsDamage(manifest.error())) return manifest.error();
    damage.push_back(manifest.error().message);
    return damage;
  }
  for (const checkpoint::ShardEntry& shard : manifest->shards) {
    const auto read = checkpoint::StreamShard(place.store, stored, shard,
                                              [](int64_t, std::string_view) { return Result<void>(); });
    if (read.ok()) continue;
    if (!checkpoint::IsDamage(read.error())) return read.error();
    damage.push_back(read.error().message);
  }
  return damage;
}

}  // namespace lockstep::checkpoint_tool
