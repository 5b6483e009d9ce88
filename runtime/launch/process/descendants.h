#pragma once
// The processes below another one, as /proc shows them: those that it started, those that these started, and so on.

#include <sys/types.h>

#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::launch {

[[nodiscard]] bool Descends(pid_t pid, pid_t ancestor);

// What a descendant of this process leaves behind becomes a child of this process, in whichever session it is.
void AdoptOrphans();

// Ends all processes below this one with SIGKILL, except `spared` and those below that. AdoptOrphans() must have been called.
// Waits until they have ended, for at most `limit`; returns those that are left: the kernel cannot end a process that
// is blocked in a driver or a file system.
[[nodiscard]] std::vector<pid_t> EndDescendants(pid_t spared, Milliseconds limit);

}  // namespace lockstep::launch
