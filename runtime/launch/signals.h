#pragma once
// Signals as events on a thread of their own, so that no code of ours runs inside a signal handler. A program
// that may be PID 1 of a container must also reap orphans: every ended child is reaped here.

#include <sys/types.h>

#include <functional>
#include <thread>

namespace lockstep::launch {

// Call first in main, before any thread exists: later threads inherit the mask.
void BlockSignals();

struct ChildExit {
  pid_t pid = 0;
  int exit_code = 0;
  int signal = 0;  // 0: it exited
};

// Calls back on its own thread until destroyed.
class SignalThread {
 public:
  // `on_user` is for SIGUSR1; without it that signal is ignored.
  SignalThread(
      std::function<void()> on_terminate, std::function<void(ChildExit)> on_child_exit,
      std::function<void()> on_user = [] {});

 private:
  std::jthread thread_;
};

}  // namespace lockstep::launch
