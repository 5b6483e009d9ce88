#include <iostream>

#include "runtime/tools/checkpoint_tool/commands.h"
#include "runtime/tools/checkpoint_tool/selection.h"
#include "runtime/tools/checkpoint_tool/text.h"

namespace lockstep::checkpoint_tool {
namespace {

using checkpoint::StoredStep;

Result<std::vector<StoredStep>> Choose(const Place& place, std::optional<int64_t> step) {
  if (!step) return checkpoint::ListSteps(place.store);
  LOCKSTEP_TRY(StoredStep stored, FindCheckpoint(place, step));
  return std::vector<StoredStep>{std::move(stored)};
}

}  // namespace

int Verify(const Place& place, std::optional<int64_t> step) {
  const auto steps = Choose(place, step);
  if (!steps.ok()) return Refuse(steps.error());
  int sound = 0;
  int damaged = 0;
  for (const StoredStep& stored : *steps) {
    const std::string name = "step " + std::to_string(stored.step) + ": ";
    if (!stored.has_manifest) {
      std::cout << name << "no checkpoint: its save is under way, or was broken off\n";
      continue;
    }
    const auto damage = FindDamage(place, stored);
    if (!damage.ok()) return Refuse(damage.error());
    for (const std::string& problem : *damage) std::cout << name << "damaged: " << Printable(problem) << "\n";
    if (damage->empty()) std::cout << name << "sound" << std::endl;  // the next may take long
    ++(damage->empty() ? sound : damaged);
  }
  if (sound + damaged == 0) return Refuse(NoCheckpoints(place));
  return damaged == 0 ? kDone : kNotSound;
}

}  // namespace lockstep::checkpoint_tool
