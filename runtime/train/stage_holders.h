#pragma once
// Who holds which layers of a model that is divided over the ranks, as numbers: what a new round decides
// with. Pure.

#include <optional>
#include <span>
#include <vector>

#include "runtime/train/shard_plan.h"

namespace lockstep::train {

// A rank, as the others know it.
struct StageHolder {
  Version version;  // of what it holds; step -1: of nothing
  Version pending;  // what it would have, had it heard the end of the step that broke; step -1: nothing
  std::vector<bool> layers;  // that it holds

  [[nodiscard]] bool CanHave(const Version& wanted) const { return version == wanted || pending == wanted; }
};

// The newest version that can be gone on from: a rank has it, so the others can hear from that one how the
// step ended, and each layer is held by one that has it or can have it.
[[nodiscard]] std::optional<Version> NewestHeldWhole(std::span<const StageHolder> holders);
// Layers that nobody holds of a version.
[[nodiscard]] std::vector<int> LayersMissing(std::span<const StageHolder> holders, const Version& version);

}  // namespace lockstep::train
