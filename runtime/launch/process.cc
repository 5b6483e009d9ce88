#include "runtime/launch/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace lockstep::launch {
namespace {

Error LastError(const std::string& operation) {
  return {ErrorCode::kInternal, operation + ": " + std::strerror(errno)};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> MergedEnvironment(const std::vector<std::string>& added) {
  std::vector<std::string> merged = added;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view existing(*entry);
    const std::string_view name = existing.substr(0, existing.find('=') + 1);
    bool replaced = false;
    for (const std::string& own : added) replaced = replaced || own.starts_with(name);
    if (!replaced) merged.emplace_back(existing);
  }
  return merged;
}

struct ChildFds {
  int inherited = -1;
  int out = -1;
  int err = -1;
};

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeChild(char* const* arguments, char* const* environment, const ChildFds& fds,
                              pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl took effect
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (fds.inherited >= 0) ::fcntl(fds.inherited, F_SETFD, 0);
  if (fds.out >= 0) ::dup2(fds.out, STDOUT_FILENO);
  if (fds.err >= 0) ::dup2(fds.err, STDERR_FILENO);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<pid_t> StartProcess(const Command& command) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = MergedEnvironment(command.environment);
  if (::access(arguments.front().c_str(), X_OK) != 0) return LastError("program " + arguments.front());
  Fd log;
  ChildFds fds{command.inherited_fd, command.stdout_fd, command.stderr_fd};
  if (!command.log_file.empty()) {
    log = Fd(::open(command.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) return LastError("opening " + command.log_file);
    fds.out = fds.err = log.get();
  }
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return LastError("fork");
  if (pid == 0) BecomeChild(argument_pointers.data(), environment_pointers.data(), fds, parent);
  return pid;
}

void KillProcess(pid_t pid, int signal) {
  if (pid > 0) ::kill(pid, signal);
}

Result<Pipe> MakePipe() {
  int fds[2] = {-1, -1};
  if (::pipe2(fds, O_CLOEXEC) != 0) return LastError("pipe");
  return Pipe{Fd(fds[0]), Fd(fds[1])};
}

Result<SocketPair> MakeSocketPair() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) return LastError("socketpair");
  return SocketPair{Fd(fds[0]), Fd(fds[1])};
}

std::string ProgramFolder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

}  // namespace lockstep::launch
