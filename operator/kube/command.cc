#include "operator/kube/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "runtime/common/base/file.h"

namespace lockstep::kube {
namespace {

constexpr std::size_t kMaxOutput = 1U << 20U;

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Replaces variables instead of adding a second one: programs differ in which of two equal names they use.
std::vector<std::string> OursAnd(const std::vector<std::string>& added) {
  std::vector<std::string> all = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view ours = *entry;
    const std::string_view name = ours.substr(0, ours.find('=') + 1);
    const bool is_given = std::any_of(added.begin(), added.end(), [&](const std::string& other) {
      return !name.empty() && std::string_view(other).starts_with(name);
    });
    if (!is_given) all.emplace_back(ours);
  }
  return all;
}

Result<pid_t> Start(const Command& command, int output) {
  std::vector<std::string> words = command.words;
  std::vector<std::string> environment = OursAnd(command.environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  // the operator blocks the signals that end it; the command must not
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, words.front().c_str(), &actions, &attributes,
                                     Pointers(words).data(), Pointers(environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure == 0) return pid;
  return Error{failure == ENOENT ? ErrorCode::kNotFound : ErrorCode::kUnavailable, std::strerror(failure)};
}

Result<void> AwaitReadable(int fd, SteadyTime deadline) {
  while (true) {
    const auto left = std::chrono::ceil<Milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready > 0) return {};
    if (ready == 0) return Error{ErrorCode::kDeadlineExceeded, "it ran too long"};
    if (errno != EINTR) return Error{ErrorCode::kUnavailable, std::strerror(errno)};
  }
}

// Reads until the other end is closed.
Result<std::string> ReadAll(int fd, SteadyTime deadline) {
  std::string output;
  std::array<char, 4096> piece{};
  while (true) {
    LOCKSTEP_TRY(AwaitReadable(fd, deadline));
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{ErrorCode::kUnavailable, std::strerror(errno)};
    if (got == 0) return output;
    output.append(piece.data(), static_cast<std::size_t>(got));
    if (output.size() > kMaxOutput) return Error{ErrorCode::kInvalidArgument, "it wrote too much"};
  }
}

}  // namespace

Result<std::string> RunCommand(const Command& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Error{ErrorCode::kUnavailable, std::strerror(errno)};
  const Fd reader(ends[0]);
  Fd writer(ends[1]);
  const auto pid = Start(command, writer.get());
  if (!pid.ok()) return pid.error().WithContext(command.words.front());
  writer.Reset();
  const SteadyTime deadline = std::chrono::steady_clock::now() + command.timeout;
  auto output = ReadAll(reader.get(), deadline);
  if (output.ok()) {  // the command has closed its output but may still run
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
    const auto ended = process.valid() ? AwaitReadable(process.get(), deadline)
                                       : Result<void>(Error{ErrorCode::kUnavailable, std::strerror(errno)});
    if (!ended.ok()) output = ended.error();
  }
  if (!output.ok()) ::kill(*pid, SIGKILL);
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) continue;
  if (output.ok() && status != 0) {
    output = Error{ErrorCode::kUnavailable, WIFEXITED(status)
                                                ? "it ended with " + std::to_string(WEXITSTATUS(status))
                                                : "signal " + std::to_string(WTERMSIG(status)) + " ended it"};
  }
  return std::move(output).WithContext(command.words.front());
}

}  // namespace lockstep::kube
