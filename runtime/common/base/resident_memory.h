#pragma once
// The memory of a process, from the kernel. Any thread.

#include <sys/types.h>

#include <optional>
#include <string_view>

namespace lockstep {

// Resident bytes of the process, without memory that it shares, such as checkpoints that outlive it; absent
// if there is no such process.
[[nodiscard]] std::optional<double> ResidentBytes(pid_t process);
// The same from the content of /proc/PID/status.
[[nodiscard]] std::optional<double> ResidentBytesOf(std::string_view status);

}  // namespace lockstep
