#pragma once
// The number of threads that a rank may use for one operation: its share of the container's processors.

#include <string_view>

namespace lockstep {

// Whole processors granted by a cgroup v2 "cpu.max" file, at least 1; 0 if it sets no limit or does not
// parse.
[[nodiscard]] int ProcessorsOfQuota(std::string_view cpu_max);

struct Processors {
  int usable = 1;     // in the affinity mask
  int quota = 0;      // of the cgroup; 0: none
  int requested = 0;  // by the container; 0: no request
};
// At least 1, at most the quota or, without one, the request. A container that requests less than a machine
// shares it, and threads that compete for processors slow all of them down.
[[nodiscard]] int ThreadsPerRank(const Processors& processors, int local_ranks);
// The processors of this process.
[[nodiscard]] Processors ProcessorsGiven(int requested);

}  // namespace lockstep
