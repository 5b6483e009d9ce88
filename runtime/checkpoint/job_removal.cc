#include "runtime/checkpoint/job_removal.h"

#include <algorithm>

#include "runtime/checkpoint/ownership.h"
#include "runtime/checkpoint/stored_checkpoints.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/protocol/history.h"

namespace lockstep::checkpoint {
namespace {

enum class Whose { kThisJobs, kAnothers, kUnowned };

struct Found {
  StoredStep stored;
  Whose whose = Whose::kUnowned;
  std::string why;  // if it has a manifest and no owner
};

Result<std::vector<Found>> FindSteps(ObjectStore& store, const std::vector<ObjectInfo>& objects,
                                     const std::string& uid) {
  std::vector<Found> found;
  for (StoredStep& stored : StepsAmong(objects)) {
    Found entry{.stored = std::move(stored)};
    if (entry.stored.has_manifest) {
      const Result<Manifest> manifest = ReadManifest(store, entry.stored.step);
      if (!manifest.ok() && !IsDamage(manifest.error())) return manifest.error();
      if (manifest.ok()) entry.whose = manifest->job_uid == uid ? Whose::kThisJobs : Whose::kAnothers;
      if (!manifest.ok()) entry.why = manifest.error().message;
    }
    found.push_back(std::move(entry));
  }
  return found;
}

bool IsMarker(const std::string& name) { return name.starts_with("owners/"); }

// These objects are outside of step folders and do not name their job.
bool IsOfSomeJob(const std::string& name) {
  return name.starts_with(kProbePrefix) || name == protocol::kHistoryName ||
         name.starts_with(std::string(protocol::kHistoryName) + ".");
}

// By the store's clock: another job is writing this step again into the same folder.
bool ChangedAfterItsManifest(const StoredStep& stored) {
  const auto& written = stored.objects.front().changed;
  return std::any_of(stored.objects.begin(), stored.objects.end(), [&](const ObjectInfo& object) {
    return written.has_value() && object.changed.has_value() && *object.changed > *written;
  });
}

class Remover {
 public:
  Remover(ObjectStore& store, bool is_alone) : store_(store), is_alone_(is_alone) {}

  // The manifest last, unlike retention: after an interruption, the rest must still be recognised as this
  // job's.
  Result<void> Remove(const Found& found) {
    const StoredStep& stored = found.stored;
    const std::string name = "step " + std::to_string(stored.step);
    if (found.whose == Whose::kAnothers) return {};
    if (!found.why.empty()) return Leave(name + ": " + found.why);
    if (!is_alone_ && !stored.has_manifest) return Leave(name + " has no manifest: it may be another job's");
    if (!is_alone_ && ChangedAfterItsManifest(stored)) return Leave(name + ": another job is overwriting it");
    for (auto object = stored.objects.rbegin(); object != stored.objects.rend(); ++object)
      LOCKSTEP_TRY(Delete(object->name));
    removal_.checkpoints += stored.has_manifest ? 1 : 0;
    return {};
  }
  Result<void> AbortUploads() {
    const auto aborted = store_.AbortUploads([](const std::string& name) { return StepOfObject(name) >= 0; });
    if (aborted.ok()) return {};
    if (aborted.error().IsTransient()) return aborted.error();
    return Leave(aborted.error().message);
  }
  Result<void> Delete(const std::string& name) {
    LOCKSTEP_TRY(store_.Delete(name));
    ++removal_.objects;
    return {};
  }
  [[nodiscard]] JobRemoval removal() const { return removal_; }

 private:
  Result<void> Leave(std::string what) {
    removal_.left.push_back(std::move(what));
    return {};
  }

  ObjectStore& store_;
  const bool is_alone_;
  JobRemoval removal_;
};

}  // namespace

Result<JobRemoval> RemoveAllOfJob(ObjectStore& store, const std::string& uid) {
  const std::string marker = MarkerOf(uid);
  LOCKSTEP_TRY(const std::vector<ObjectInfo> objects, store.List());
  LOCKSTEP_TRY(const std::vector<Found> steps, FindSteps(store, objects, uid));
  const bool has_others =
      std::any_of(steps.begin(), steps.end(),
                  [](const Found& found) { return found.whose == Whose::kAnothers || !found.why.empty(); }) ||
      std::any_of(objects.begin(), objects.end(),
                  [&](const ObjectInfo& object) { return IsMarker(object.name) && object.name != marker; });
  Remover remover(store, !has_others);
  for (const Found& found : steps) LOCKSTEP_TRY(remover.Remove(found));
  for (const ObjectInfo& object : objects) {
    if (!has_others && IsOfSomeJob(object.name)) LOCKSTEP_TRY(remover.Delete(object.name));
  }
  if (!has_others) LOCKSTEP_TRY(remover.AbortUploads());
  const bool has_marker = std::any_of(objects.begin(), objects.end(),
                                      [&](const ObjectInfo& object) { return object.name == marker; });
  if (has_marker) LOCKSTEP_TRY(remover.Delete(marker));
  return remover.removal();
}

Result<bool> SeemsToRun(ObjectStore& store, const std::string& uid, WallTime now) {
  const Result<std::string> content = store.Get(MarkerOf(uid));
  if (!content.ok() && content.error().code == ErrorCode::kNotFound) return false;
  if (!content.ok()) return content.error();
  const auto json = ParseJson(*content);
  const auto renewed = ParseTime(json.ok() ? StringAt(*json, {"time"}) : "");
  return renewed.ok() && now - *renewed < kLease;
}

}  // namespace lockstep::checkpoint
