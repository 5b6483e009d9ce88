#pragma once
// Child processes: starts one with given environment and descriptors, and ends it by its id. The parent must
// have blocked SIGCHLD and reap children through signals.h.

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
  int stdout_fd = -1;                    // … these are set; -1: not set
  int stderr_fd = -1;
  bool own_group = false;  // a separate process group, for KillGroup
};

// The child dies with the thread that started it (PR_SET_PDEATHSIG), so call this from a thread that lives as
// long as the child should. Signals are unblocked in the child, and it gets the limit of open files with
// which this process was started. From Linux 5.11 on it gets no descriptors but standard streams and
// `inherited_fd`.
[[nodiscard]] Result<pid_t> StartProcess(const Command& command);
void KillProcess(pid_t pid, int signal);
// Signals all processes of the group that `leader` was started with, also after the leader's end.
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

// The command that starts the running program again, without its arguments: its path; or the dynamic loader,
// its options and the path, if it was started that way (self_copy.h). `arguments` is the number of arguments
// that main got after the first.
[[nodiscard]] std::vector<std::string> OwnCommand(int arguments);

// Like a shell: a name without "/" is searched in the folders of `search_path`.
[[nodiscard]] Result<std::string> FindProgram(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
