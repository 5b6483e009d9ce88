#pragma once
// Child processes: start one with given environment and descriptors, end it by its own id. The parent must
// have blocked SIGCHLD and reap through signals.h.

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/common/base/file.h"
#include "runtime/common/base/result.h"

namespace lockstep::launch {

struct Command {
  std::vector<std::string> arguments;    // arguments[0] is the program's path
  std::vector<std::string> environment;  // NAME=value, added to this process's own
  int inherited_fd = -1;                 // kept open over exec under the same number; -1: none
  std::string log_file;                  // stdout and stderr are appended here; empty: inherited, unless …
  int stdout_fd = -1;                    // … these say otherwise; -1: they do not
  int stderr_fd = -1;
  bool own_group = false;  // a process group of its own, for KillGroup
};

// The child dies with the thread that started it (PR_SET_PDEATHSIG), so call from a thread that lives as long
// as the child should. Signals are unblocked in the child, and it has the limit of open files that this
// process was started with.
[[nodiscard]] Result<pid_t> StartProcess(const Command& command);
void KillProcess(pid_t pid, int signal);
// All processes of the group that `leader` was started with, also after the leader's end.
void KillGroup(pid_t leader, int signal);

// Close-on-exec.
struct Pipe {
  Fd reading;
  Fd writing;
};
[[nodiscard]] Result<Pipe> MakePipe();

// A connected pair of stream sockets, close-on-exec.
struct SocketPair {
  Fd ours;
  Fd theirs;
};
[[nodiscard]] Result<SocketPair> MakeSocketPair();

// The folder of the running program.
[[nodiscard]] std::string ProgramFolder();

// What starts the running program once more, without its arguments: its path; or the dynamic loader, its
// options and the path, where it was started so (self_copy.h). `arguments`: how many main got after the
// first.
[[nodiscard]] std::vector<std::string> OwnCommand(int arguments);

// As a shell does: a name without "/" is looked for in the folders of `search_path`.
[[nodiscard]] Result<std::string> FindProgram(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
