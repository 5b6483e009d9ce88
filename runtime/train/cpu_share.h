#pragma once
// How many threads a rank may use for one operation: its share of the processors that its container was
// given.

#include <string_view>

namespace lockstep::train {

// Whole processors that a cgroup v2 "cpu.max" file grants, at least 1; 0 where it sets no limit or does not
// parse.
[[nodiscard]] int ProcessorsOfQuota(std::string_view cpu_max);
// Of this process: the smaller of its affinity mask and its cgroup's quota, divided by the ranks that share
// them.
[[nodiscard]] int ThreadsPerRank(int local_ranks);

}  // namespace lockstep::train
