#pragma once
// What the kernel says of a process's threads, for the log of a hang: also for one that is stopped and cannot
// speak for itself.

#include <sys/types.h>

#include <string>

namespace lockstep::launch {

// Name, state and, where this process may read them, what each thread waits for and its kernel stack; the
// main thread first. Empty where the process is gone.
[[nodiscard]] std::string DescribeThreads(pid_t pid);

// Whether the kernel does not let the process run: SIGSTOP, or a debugger. False where it is gone.
[[nodiscard]] bool IsStopped(pid_t pid);

}  // namespace lockstep::launch
