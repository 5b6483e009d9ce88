#pragma once
// The limit of open files and connections. Container runtimes and systemd start programs with a soft limit of
// 1024, for programs that call select(); a server with many connections needs the hard limit. Called by
// `main` before the first thread starts.

#include <sys/resource.h>

#include <cstddef>

namespace lockstep {

// Raises the soft limit to the hard limit and returns it.
std::size_t RaiseOpenFileLimit();
// The current soft limit.
[[nodiscard]] std::size_t OpenFileLimit();

// The limit at the start of this process, which its child processes get: a foreign program may close every
// descriptor up to its limit, or call select().
[[nodiscard]] const rlimit& OpenFileLimitAtStart();

}  // namespace lockstep
