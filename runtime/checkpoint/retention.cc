#include "runtime/checkpoint/retention.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/log.h"
#include "runtime/common/protocol/history.h"

namespace lockstep::checkpoint {
namespace {

// The first checkpoint at or after each multiple of `every`. `newest_first` contains what was kept before, so
// the result does not change over time.
std::set<int64_t> KeptForGood(const std::vector<StoredStep>& newest_first, std::optional<int64_t> every) {
  std::set<int64_t> kept;
  // The newest interval that has its checkpoint; before the first multiple nothing is kept.
  int64_t interval = 0;
  for (auto stored = newest_first.rbegin(); every.has_value() && stored != newest_first.rend(); ++stored) {
    if (!stored->has_manifest || stored->step / *every <= interval) continue;
    interval = stored->step / *every;
    kept.insert(stored->step);
  }
  return kept;
}

std::string BesideTheManifest(const std::string& name) { return name.substr(name.find('/') + 1); }

bool IsOfASave(const std::string& file) {
  return file.starts_with("shard-") || (file.starts_with(kManifestName) && file != kManifestName);
}

// Decides by names alone, so that nothing has to be read: after the rank, the names of all shards of an
// attempt are equal.
bool HasSeveralAttempts(const StoredStep& stored) {
  constexpr std::size_t kRankEnd = sizeof("shard-00000") - 1;
  std::set<std::string> endings;
  for (const ObjectInfo& object : stored.objects) {
    const std::string file = BesideTheManifest(object.name);
    if (IsOfASave(file)) endings.insert(file.substr(std::min(kRankEnd, file.size())));
  }
  return endings.size() > 1;
}

// Removes what a failed attempt left in the folder of a later complete one.
Result<void> RemoveOtherAttempts(ObjectStore& store, const StoredStep& stored) {
  LOCKSTEP_TRY(const Manifest manifest, ReadManifest(store, stored.step));
  for (const ObjectInfo& object : stored.objects) {
    const std::string file = BesideTheManifest(object.name);
    const bool is_named = std::any_of(manifest.shards.begin(), manifest.shards.end(),
                                      [&](const ShardEntry& shard) { return shard.name == file; });
    if (IsOfASave(file) && !is_named) LOCKSTEP_TRY(store.Delete(object.name));
  }
  return {};
}

// Objects that a killed process left outside of step folders: the probe of its opening, or a history that it
// had not renamed yet. A process that still uses one of these tolerates its removal.
bool IsLeftBesideTheSteps(const std::string& name) {
  if (name.starts_with(kProbePrefix)) return name.find('.') == std::string::npos;
  return name.starts_with(std::string(protocol::kHistoryName) + ".");
}

void Say(const Result<void>& removed, int64_t step) {
  if (!removed.ok())
    log::Warning("old checkpoint not removed", {{"step", step}, {"error", removed.error().message}});
}

// No process will complete the object: all ranks have stored their shards of the newest step. Only a rank
// that is ahead may be storing another object of the same round and step.
bool IsOrphanOf(const Kept& kept, const std::string& name) {
  const int64_t step = StepOfObject(name);
  return (step >= 0 && step < kept.newest) || (step == kept.newest && !IsOfRound(name, kept.round));
}

bool IsOfALostSave(const RetentionMemory& memory, const std::string& name) {
  const int64_t step = StepOfObject(name);
  return std::any_of(memory.lost.begin(), memory.lost.end(), [&](const LostSave& lost) {
    return lost.step == step && IsOneOf(lost.shards, BesideTheManifest(name));
  });
}

void AbortOrphans(ObjectStore& store, RetentionMemory& memory, const IsOrphan& is_orphan) {
  const auto aborted = store.AbortUploads(is_orphan);
  if (aborted.ok()) {
    if (*aborted > 0) log::Info("unfinished uploads aborted", {{"uploads", *aborted}});
    return;
  }
  memory.aborts_uploads = aborted.error().IsTransient();
  log::Warning(memory.aborts_uploads ? "unfinished uploads not aborted"
                                     : "unfinished uploads remain until a rule of the bucket removes them",
               {{"error", aborted.error().message}});
}

}  // namespace

void RemoveWhatIsNotKept(ObjectStore& store, const Kept& kept, RetentionMemory& memory) {
  const auto objects = store.List();
  if (!objects.ok()) return log::Warning("old checkpoints not removed", {{"error", objects.error().message}});
  const std::vector<StoredStep> steps = StepsAmong(*objects);
  const std::set<int64_t> for_good = KeptForGood(steps, kept.every_steps);
  int complete = 0;
  for (const StoredStep& stored : steps) {
    if (stored.step > kept.newest) continue;
    if (!stored.has_manifest) {
      if (memory.in_doubt.erase(stored.step) == 0) Say(RemoveStep(store, stored), stored.step);
    } else if (complete++ >= kept.last && !for_good.contains(stored.step)) {
      Say(RemoveStep(store, stored), stored.step);
    } else if (stored.step < kept.newest && HasSeveralAttempts(stored)) {
      // Not for the newest step: the manifest of an earlier attempt may appear late, and then needs its
      // shards.
      Say(RemoveOtherAttempts(store, stored), stored.step);
    }
  }
  for (const ObjectInfo& object : *objects) {
    if (IsLeftBesideTheSteps(object.name)) Say(store.Delete(object.name), kept.newest);
  }
  if (memory.aborts_uploads)
    AbortOrphans(store, memory, [&](const std::string& name) { return IsOrphanOf(kept, name); });
  std::erase_if(memory.lost, [&](const LostSave& lost) { return lost.step < kept.newest; });
}

void RemoveLostSaves(ObjectStore& store, RetentionMemory& memory, const std::stop_token& stop) {
  if (memory.lost.empty() || stop.stop_requested()) return;
  const auto objects = store.List();
  if (!objects.ok()) return log::Warning("lost shards not removed", {{"error", objects.error().message}});
  for (const ObjectInfo& object : *objects) {
    if (stop.stop_requested()) return;
    if (IsOfALostSave(memory, object.name)) Say(store.Delete(object.name), StepOfObject(object.name));
  }
  if (memory.aborts_uploads)
    AbortOrphans(store, memory, [&](const std::string& name) { return IsOfALostSave(memory, name); });
}

}  // namespace lockstep::checkpoint
