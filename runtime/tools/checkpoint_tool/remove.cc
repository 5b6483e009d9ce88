#include <iostream>

#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/selection.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {
namespace {

using checkpoint::StoredStep;

Result<bool> IsSound(const Place& place, const StoredStep& stored) {
  if (!stored.has_manifest) return false;
  LOCKSTEP_TRY(const std::vector<std::string> damage, FindDamage(place, stored));
  return damage.empty();
}

// Until one is found: mostly that is the newest.
Result<bool> IsAnotherSound(const Place& place, const std::vector<StoredStep>& steps, int64_t step) {
  for (const StoredStep& stored : steps) {
    if (stored.step == step) continue;
    LOCKSTEP_TRY(const bool sound, IsSound(place, stored));
    if (sound) return true;
  }
  return false;
}

bool MayBeUnderWay(const std::vector<StoredStep>& steps, const StoredStep& chosen) {
  if (chosen.has_manifest) return false;
  for (const StoredStep& stored : steps) {
    if (stored.has_manifest) return chosen.step > stored.step;  // the newest
  }
  return true;
}

// What speaks against it; empty: nothing.
Result<std::string> Objection(const Place& place, const std::vector<StoredStep>& steps,
                              const StoredStep& chosen) {
  const std::string name = "step " + std::to_string(chosen.step);
  if (MayBeUnderWay(steps, chosen)) return name + " has no manifest and may be a save that is under way";
  if (!chosen.has_manifest) return std::string();
  LOCKSTEP_TRY(const bool another, IsAnotherSound(place, steps, chosen.step));
  if (another) return std::string();
  LOCKSTEP_TRY(const bool sound, IsSound(place, chosen));
  return sound ? name + " is the only sound checkpoint below " + place.uri : std::string();
}

Result<StoredStep> FindAndRemove(const Place& place, const RemoveArguments& arguments) {
  LOCKSTEP_TRY(const std::vector<StoredStep> steps, checkpoint::ListSteps(place.store));
  LOCKSTEP_TRY(StoredStep chosen, FindStep(place, steps, arguments.step));
  if (!arguments.force) {
    LOCKSTEP_TRY(const std::string objection, Objection(place, steps, chosen));
    if (!objection.empty())
      return Error{ErrorCode::kConflict, objection + "; it is removed with --force only"};
  }
  LOCKSTEP_TRY(checkpoint::RemoveStep(place.store, chosen));
  return chosen;
}

}  // namespace

int Remove(const Place& place, const RemoveArguments& arguments) {
  const auto removed = FindAndRemove(place, arguments);
  if (!removed.ok()) return Refuse(removed.error());
  std::cout << "removed " << Printable(place.store.UriOf(checkpoint::FolderOfStep(arguments.step))) << ": "
            << removed->objects.size() << " objects\n";
  return kDone;
}

}  // namespace lockstep::checkpoint_tool
