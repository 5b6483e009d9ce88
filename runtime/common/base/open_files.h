#pragma once
// How many files and connections this process may have open. Container runtimes and systemd start programs
// with a soft limit of 1024, for the sake of programs that call select(); a server of many connections needs
// the hard limit. Called by `main`, before the first thread.

#include <sys/resource.h>

#include <cstddef>

namespace lockstep {

// Raises the soft limit to the hard limit and returns it.
std::size_t RaiseOpenFileLimit();
// The soft limit, as it is now.
[[nodiscard]] std::size_t OpenFileLimit();

// The limit that this process was started with: what its child processes get. A program that is not ours may
// close every descriptor up to its limit, or call select().
[[nodiscard]] const rlimit& OpenFileLimitAtStart();

}  // namespace lockstep
