#include "runtime/train/cpu_share.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "runtime/common/base/file.h"

namespace lockstep::train {

int ProcessorsOfQuota(std::string_view cpu_max) {
  // "quota period" in microseconds, or "max period"
  double quota = 0;
  double period = 0;
  if (std::sscanf(std::string(cpu_max).c_str(), "%lf %lf", &quota, &period) != 2 || quota <= 0 || period <= 0)
    return 0;
  return std::max(1, static_cast<int>(std::floor(quota / period)));
}

int ThreadsPerRank(int local_ranks) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  int processors = ::sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
  // A container sees its own cgroup as the root.
  if (const Result<std::string> file = ReadFile("/sys/fs/cgroup/cpu.max"); file.ok()) {
    if (const int quota = ProcessorsOfQuota(*file); quota > 0) processors = std::min(processors, quota);
  }
  return std::max(1, processors / std::max(1, local_ranks));
}

}  // namespace lockstep::train
