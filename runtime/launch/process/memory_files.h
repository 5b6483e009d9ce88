#pragma once
// Anonymous files in memory, which live for as long as a process has them open.

#include <sys/types.h>

#include <string_view>

namespace lockstep::launch {

// Bytes of memory that the process's open files with this name (of memfd_create) take; 0 where /proc does not show its files.
// Any thread.
[[nodiscard]] double MemoryFileBytes(pid_t process, std::string_view name);

}  // namespace lockstep::launch
