#pragma once
// The kernel's view of a process's threads, for the log of a hang. It works for a stopped process, too.

#include <sys/types.h>

#include <string>

namespace lockstep::launch {

// Name, state and, if this process may read them, wait channel and kernel stack of each thread; the main
// thread first. Empty if the process no longer exists.
[[nodiscard]] std::string DescribeThreads(pid_t pid);

// Whether the kernel does not let the process run: SIGSTOP, or a debugger. False where it is gone.
[[nodiscard]] bool IsStopped(pid_t pid);

}  // namespace lockstep::launch
