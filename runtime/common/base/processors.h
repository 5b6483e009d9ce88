#pragma once
// How many threads a rank may use for one operation: its share of the processors that its container was
// given.

#include <string_view>

namespace lockstep {

// Whole processors that a cgroup v2 "cpu.max" file grants, at least 1; 0 where it sets no limit or does not
// parse.
[[nodiscard]] int ProcessorsOfQuota(std::string_view cpu_max);

struct Processors {
  int usable = 1;     // by the affinity mask
  int quota = 0;      // of the cgroup; 0: none
  int requested = 0;  // by the container; 0: nothing
};
// At most the quota or, without one, the request: who requests less than a machine shares it, and threads
// that wait for processors that others have make all of them slower. At least 1.
[[nodiscard]] int ThreadsPerRank(const Processors& processors, int local_ranks);
// What this process is given.
[[nodiscard]] Processors ProcessorsGiven(int requested);

}  // namespace lockstep
