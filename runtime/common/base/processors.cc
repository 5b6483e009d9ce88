#include "runtime/common/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "runtime/common/base/file.h"

namespace lockstep {

int ProcessorsOfQuota(std::string_view cpu_max) {
  // "quota period" in microseconds, or "max period"
  double quota = 0;
  double period = 0;
  if (std::sscanf(std::string(cpu_max).c_str(), "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0)
    return 0;
  return std::max(1, static_cast<int>(std::floor(quota / period)));
}

int ThreadsPerRank(const Processors& processors, int local_ranks) {
  const int share = processors.quota > 0 ? processors.quota : processors.requested;
  const int ours = share > 0 ? std::min(processors.usable, share) : processors.usable;
  return std::max(1, ours / std::max(1, local_ranks));
}

Processors ProcessorsGiven(int requested) {
  Processors given{.requested = requested};
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) given.usable = CPU_COUNT(&mask);
  // A container sees its own cgroup as the root.
  if (const Result<std::string> file = ReadFile("/sys/fs/cgroup/cpu.max"); file.ok())
    given.quota = ProcessorsOfQuota(*file);
  return given;
}

}  // namespace lockstep
