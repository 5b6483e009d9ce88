#pragma once
// Slurm's lists of machines, as in SLURM_STEP_NODELIST: "node[1-3,07],gpu-05". Pure.

#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

inline constexpr std::size_t kMostMachines = 10'000;

// The names in their order; "[08-10]" keeps its zeros, and of several brackets in a name the last counts
// fastest. Fails on what is not such a list, and on more than kMostMachines.
[[nodiscard]] Result<std::vector<std::string>> ExpandNodeList(std::string_view text);

}  // namespace lockstep::launch
