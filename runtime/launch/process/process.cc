#include "runtime/launch/process/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "runtime/common/base/open_files.h"
#include "runtime/common/base/strings.h"

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

struct ChildSetup {
  int inherited = -1;
  int out = -1;
  int err = -1;
  bool own_group = false;
  rlimit open_files = OpenFileLimitAtStart();
};

// Runs between fork and exec: async-signal-safe calls only.
[[noreturn]] void BecomeChild(char* const* arguments, char* const* environment, const ChildSetup& setup,
                              pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // the parent died before prctl took effect
  if (setup.own_group) ::setpgid(0, 0);
  ::setrlimit(RLIMIT_NOFILE, &setup.open_files);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);  // ignored in this process; an exec would keep that
  // Libraries open sockets without this flag, and a child would keep a port in use after the end of this
  // process. Kernels before 5.11 do not know the call, so it does there.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (setup.inherited >= 0) ::fcntl(setup.inherited, F_SETFD, 0);
  if (setup.out >= 0) ::dup2(setup.out, STDOUT_FILENO);
  if (setup.err >= 0) ::dup2(setup.err, STDERR_FILENO);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<pid_t> StartProcess(const Command& command) {
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = MergedEnvironment(command.environment);
  if (::access(arguments.front().c_str(), X_OK) != 0) return LastError("program " + arguments.front());
  Fd log;
  ChildSetup setup{command.inherited_fd, command.stdout_fd, command.stderr_fd, command.own_group};
  if (!command.log_file.empty()) {
    log = Fd(::open(command.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!log.valid()) return LastError("opening " + command.log_file);
    setup.out = setup.err = log.get();
  }
  const std::vector<char*> argument_pointers = Pointers(arguments);
  const std::vector<char*> environment_pointers = Pointers(environment);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return LastError("fork");
  if (pid == 0) BecomeChild(argument_pointers.data(), environment_pointers.data(), setup, parent);
  // Also in the parent, so that the group exists when this function returns.
  if (command.own_group) ::setpgid(pid, pid);
  return pid;
}

void KillProcess(pid_t pid, int signal) {
  if (pid > 0) ::kill(pid, signal);
}

void KillGroup(pid_t leader, int signal) {
  if (leader > 1) ::kill(-leader, signal);
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

std::vector<std::string> OwnCommand(int arguments) {
  const Result<std::string> line = ReadFile("/proc/self/cmdline");
  std::vector<std::string> words = line.ok() ? Split(*line, '\0') : std::vector<std::string>();
  if (!words.empty()) words.pop_back();  // after the last '\0'
  const auto own = words.size() - std::min(words.size(), static_cast<std::size_t>(arguments));
  // A single word may be a plain name that a shell found in its PATH.
  if (own <= 1) return {std::filesystem::read_symlink("/proc/self/exe").string()};
  words.resize(own);
  return words;
}

Result<std::string> FindProgram(const std::string& name, const std::string& search_path) {
  const Error missing{ErrorCode::kNotFound, "command " + name + ": not found"};
  const auto can_run = [](const std::string& path) {
    std::error_code ignored;  // of a folder that may not be searched: continue, as a shell does
    return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != std::string::npos) return can_run(name) ? Result<std::string>(name) : missing;
  for (const std::string& folder : Split(search_path, ':')) {
    const std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (can_run(path)) return path;
  }
  return Error{missing.code, missing.message + " in PATH, " + search_path};
}

}  // namespace lockstep::launch
