#pragma once
// Suggests the intended name for a mistyped one. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The most similar candidate, if it is similar enough to be a typing error: at most a third of its letters
// inserted, omitted, replaced or swapped with their neighbour. Case is ignored. The first of several; never
// one that equals `name`.
[[nodiscard]] std::optional<std::string> ClosestName(std::string_view name,
                                                     const std::vector<std::string>& candidates);

// `: did you mean "globalBatchSize"?`, to append to an error; empty if no candidate is similar.
[[nodiscard]] std::string DidYouMean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace lockstep
