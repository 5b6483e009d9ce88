#include "runtime/launch/process/signals.h"

#include <signal.h>
#include <sys/wait.h>

#include <ctime>

namespace lockstep::launch {
namespace {

sigset_t HandledSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD, SIGUSR1, SIGUSR2}) sigaddset(&set, number);
  return set;
}

void ReapAll(const std::function<void(ChildExit)>& on_child_exit) {
  int status = 0;
  pid_t pid = 0;
  while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
    if (WIFEXITED(status)) on_child_exit({pid, WEXITSTATUS(status), 0});
    if (WIFSIGNALED(status)) on_child_exit({pid, 128 + WTERMSIG(status), WTERMSIG(status)});
  }
}

}  // namespace

void BlockSignals() {
  const sigset_t set = HandledSignals();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Writing to the socket of a dead rank must return an error instead of raising SIGPIPE.
  ::signal(SIGPIPE, SIG_IGN);
}

SignalThread::SignalThread(std::function<void()> on_terminate, std::function<void(ChildExit)> on_child_exit,
                           std::function<void()> on_user1, std::function<void()> on_user2)
    : thread_([on_terminate = std::move(on_terminate), on_child_exit = std::move(on_child_exit),
               on_user1 = std::move(on_user1), on_user2 = std::move(on_user2)](std::stop_token stop) {
        const sigset_t set = HandledSignals();
        const timespec poll{.tv_sec = 0, .tv_nsec = 200'000'000};
        while (!stop.stop_requested()) {
          const int number = ::sigtimedwait(&set, nullptr, &poll);
          if (number == SIGTERM || number == SIGINT) on_terminate();
          if (number == SIGUSR1) on_user1();
          if (number == SIGUSR2) on_user2();
          // Also on a time-out, because several exits may share one pending SIGCHLD.
          ReapAll(on_child_exit);
        }
      }) {}

}  // namespace lockstep::launch
