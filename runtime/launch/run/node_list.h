#pragma once
// Slurm's node lists, as in SLURM_STEP_NODELIST: "node[1-3,07],gpu-05". Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

inline constexpr std::size_t kMostMachines = 10'000;

// Returns the names in order. "[08-10]" keeps its zeros; with several brackets in a name the last one varies
// fastest. Fails on invalid lists, and on more than kMostMachines.
[[nodiscard]] Result<std::vector<std::string>> ExpandNodeList(std::string_view text);

}  // namespace lockstep::launch
