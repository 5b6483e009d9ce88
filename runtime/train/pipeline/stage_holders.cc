#include "runtime/train/pipeline/stage_holders.h"

#include <algorithm>

namespace lockstep::train {

std::vector<int> LayersMissing(std::span<const StageHolder> holders, const Version& version) {
  std::vector<int> missing;
  for (std::size_t layer = 0; !holders.empty() && layer < holders.front().layers.size(); ++layer) {
    const bool is_held = std::any_of(holders.begin(), holders.end(), [&](const StageHolder& holder) {
      return holder.CanHave(version) && holder.layers.at(layer);
    });
    if (!is_held) missing.push_back(static_cast<int>(layer));
  }
  return missing;
}

std::optional<Version> NewestHeldWhole(std::span<const StageHolder> holders) {
  std::optional<Version> newest;
  for (const StageHolder& holder : holders) {
    if (holder.version.step < 0 || (newest.has_value() && holder.version <= *newest)) continue;
    if (LayersMissing(holders, holder.version).empty()) newest = holder.version;
  }
  return newest;
}

}  // namespace lockstep::train
