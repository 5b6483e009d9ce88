#include "runtime/launch/supervisor/rank_memory.h"

#include <algorithm>

#include "runtime/common/base/resident_memory.h"
#include "runtime/launch/process/memory_files.h"

namespace lockstep::launch {

std::optional<RankMemory> MemoryOfRank(pid_t process, const ProcessTable& processes) {
  const auto own = ResidentBytes(process);
  if (!own.has_value()) return std::nullopt;
  RankMemory memory{.resident_bytes = *own, .checkpoint_bytes = MemoryFileBytes(process, kCheckpointMemory)};
  for (const pid_t pid : processes.RunningBelow(process))
    memory.resident_bytes = std::max(memory.resident_bytes, ResidentBytes(pid).value_or(0));
  return memory;
}

}  // namespace lockstep::launch
