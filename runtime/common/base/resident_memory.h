#pragma once
// The memory of a process, from the kernel. Any thread.

#include <sys/types.h>

#include <optional>

namespace lockstep {

// Resident bytes of the process; absent if there is no such process.
[[nodiscard]] std::optional<double> ResidentBytes(pid_t process);

}  // namespace lockstep
