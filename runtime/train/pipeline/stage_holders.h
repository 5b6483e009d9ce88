#pragma once
// Which rank holds which layers of a model that is divided over the ranks; a new round decides with it where
// to continue. Pure.

#include <optional>
#include <span>
#include <vector>

#include "runtime/train/state/version.h"

namespace lockstep::train {

// What the other ranks know about a rank.
struct StageHolder {
  Version version;  // of the layers it holds; step -1: none
  // The version it can complete once it learns the outcome of the interrupted step; step -1: none.
  Version pending;
  std::vector<bool> layers;  // that it holds

  [[nodiscard]] bool CanHave(const Version& wanted) const { return version == wanted || pending == wanted; }
};

// The newest version from which training can continue: at least one rank has completed it, so the others
// learn from that rank how the step ended, and each layer is held by a rank that has completed the version or
// can complete it.
[[nodiscard]] std::optional<Version> NewestHeldWhole(std::span<const StageHolder> holders);
// The layers of a version that no rank holds.
[[nodiscard]] std::vector<int> LayersMissing(std::span<const StageHolder> holders, const Version& version);

}  // namespace lockstep::train
