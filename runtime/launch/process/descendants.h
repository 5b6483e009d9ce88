#pragma once
// The processes below another one, as /proc shows them: those that it started, those that these started, and so on.

#include <sys/types.h>

#include <map>
#include <vector>

#include "runtime/common/base/clock.h"

namespace lockstep::launch {

// All processes at one moment.
class ProcessTable {
 public:
  [[nodiscard]] static ProcessTable Read();
  // Those below `ancestor` that have not ended, except `spared` and those below that.
  [[nodiscard]] std::vector<pid_t> RunningBelow(pid_t ancestor, pid_t spared = 0) const;

 private:
  struct Process {
    char state = 'Z';
    pid_t parent = 0;
  };
  // One that has ended counts as a zombie without a parent.
  [[nodiscard]] static Process Look(pid_t pid);
  friend bool Descends(pid_t pid, pid_t ancestor);

  std::map<pid_t, Process> processes_;
};

[[nodiscard]] bool Descends(pid_t pid, pid_t ancestor);

// What a descendant of this process leaves behind becomes a child of this process, in whichever session it is.
void AdoptOrphans();

// Ends all processes below this one with SIGKILL, except `spared` and those below that. AdoptOrphans() must have been called.
// Waits until they have ended, for at most `limit`; returns those that are left: the kernel cannot end a process that
// is blocked in a driver or a file system.
[[nodiscard]] std::vector<pid_t> EndDescendants(pid_t spared, Milliseconds limit);

}  // namespace lockstep::launch
