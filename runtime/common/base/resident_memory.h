#pragma once
// What the kernel says of a process's memory. Any thread.

#include <sys/types.h>

#include <optional>

namespace lockstep {

// Bytes that the process holds in memory; absent where there is no such process.
[[nodiscard]] std::optional<double> ResidentBytes(pid_t process);

}  // namespace lockstep
