#include "runtime/train/records/stack_writer.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace lockstep::train {
namespace {

constexpr int kMostFrames = 64;

// Runs in the signal handler: async-signal-safe calls only.
void WriteStack(int) {
  const int before = errno;
  static constexpr std::string_view kTitle = "stack of the training thread:\n";
  (void)!::write(STDERR_FILENO, kTitle.data(), kTitle.size());
  std::array<void*, kMostFrames> frames{};
  const int count = ::backtrace(frames.data(), kMostFrames);
  ::backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  errno = before;
}

}  // namespace

void WriteStackOnSignal() {
  // The first call to backtrace loads a library, which must not happen inside a handler.
  std::array<void*, 1> frame{};
  (void)::backtrace(frame.data(), 1);
  struct sigaction action {};
  action.sa_handler = WriteStack;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace lockstep::train
