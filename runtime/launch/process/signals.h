#pragma once
// Delivers signals as events on a separate thread, so no code of ours runs inside a signal handler. A program
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
  // SIGUSR1 and SIGUSR2 are used in `lockstep run` only; elsewhere they are ignored.
  SignalThread(
      std::function<void()> on_terminate, std::function<void(ChildExit)> on_child_exit,
      std::function<void()> on_user1 = [] {}, std::function<void()> on_user2 = [] {});

 private:
  std::jthread thread_;
};

}  // namespace lockstep::launch
