#pragma once
// The host memory of a rank, as the kernel accounts for it.

#include <sys/types.h>

#include <optional>

#include "runtime/launch/process/descendants.h"

namespace lockstep::launch {

// Name of the files in memory that `lockstep program` keeps for the checkpoints of a program that joins.
inline constexpr const char* kCheckpointMemory = "lockstep-checkpoint";

struct RankMemory {
  // Of the largest process of the rank. A sum would count the pages that a data loader shares with the program twice.
  double resident_bytes = 0;
  double checkpoint_bytes = 0;  // of the checkpoints of a program, which resident_bytes does not contain
};

// `process`: of the rank, which may have started others. No value: it has ended. Any thread.
[[nodiscard]] std::optional<RankMemory> MemoryOfRank(pid_t process, const ProcessTable& processes);

}  // namespace lockstep::launch
