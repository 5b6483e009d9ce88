#pragma once
// What a mistyped name was probably meant to be. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The candidate that differs least from `name`, where that is little enough to be a slip of the keyboard: at
// most a third of its letters inserted, left out, replaced or swapped with their neighbour. Upper and lower
// case count as equal. Of several the first; none for a candidate that equals `name`.
[[nodiscard]] std::optional<std::string> ClosestName(std::string_view name,
                                                     const std::vector<std::string>& candidates);

// `: did you mean "globalBatchSize"?`, to append to an error; empty where no candidate is close.
[[nodiscard]] std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
