#include "runtime/tools/kubectl_plugin/kubectl.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>

#include "runtime/common/base/file.h"
#include "runtime/tools/kubectl_plugin/failure_text.h"

namespace lockstep::kubectl_plugin {
namespace {

using namespace std::chrono_literals;

constexpr auto kRunTime = 60s;
constexpr int kNotStarted = 127;  // the exit code of a shell for this case
constexpr std::size_t kKeptErrors = 1U << 16U;

Error LastError(const char* what) {
  return {ErrorCode::kUnavailable, std::string(what) + ": " + std::strerror(errno)};
}

struct Pipe {
  Fd reading;
  Fd writing;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return LastError("pipe");
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

[[noreturn]] void Become(std::vector<char*>& words, pid_t parent, Kubectl::Input input, int output,
                         int errors) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(kNotStarted);
  if (input == Kubectl::Input::kNone) {
    const int nothing = ::open("/dev/null", O_RDONLY);
    if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  }
  ::dup2(output, STDOUT_FILENO);
  ::dup2(errors, STDERR_FILENO);
  ::execvp(words.front(), words.data());
  ::_exit(kNotStarted);
}

// A running kubectl process; Wait or the destructor waits for its end.
class Child {
 public:
  static Result<Child> Start(std::vector<std::string> words, Kubectl::Input input) {
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    LOCKSTEP_TRY(Pipe output, MakePipe());
    LOCKSTEP_TRY(Pipe errors, MakePipe());
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) return LastError("fork");
    if (pid == 0) Become(pointers, parent, input, output.writing.get(), errors.writing.get());
    return Child(pid, std::move(output.reading), std::move(errors.reading));
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)),
        output_(std::move(other.output_)),
        errors_(std::move(other.errors_)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    (void)Wait();
  }

  // Returns the wait status.
  [[nodiscard]] int Wait() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
    return status;
  }

  // True once both ends are closed; false if `on_output` returned false.
  Result<bool> Pump(const Kubectl::OnOutput& on_output, std::optional<SteadyTime> deadline) {
    while (output_.valid() || errors_.valid()) {
      std::array<pollfd, 2> waiting = {pollfd{output_.get(), POLLIN, 0}, pollfd{errors_.get(), POLLIN, 0}};
      int wait_ms = -1;
      if (deadline) {
        const auto left = std::chrono::ceil<Milliseconds>(*deadline - std::chrono::steady_clock::now());
        wait_ms = static_cast<int>(std::max<int64_t>(0, left.count()));
      }
      const int ready = ::poll(waiting.data(), waiting.size(), wait_ms);
      if (ready < 0 && errno != EINTR) return LastError("poll");
      if (ready == 0) return Error{ErrorCode::kDeadlineExceeded, "kubectl took too long"};
      if (waiting[0].revents != 0 && !on_output(Take(output_))) return false;
      if (waiting[1].revents != 0) KeepErrors(Take(errors_));
    }
    return true;
  }
  [[nodiscard]] const std::string& said() const { return said_; }

 private:
  Child(pid_t pid, Fd output, Fd errors)
      : pid_(pid), output_(std::move(output)), errors_(std::move(errors)) {}

  // Empty at the end of the stream, and closes it.
  std::string_view Take(Fd& fd) {
    const ssize_t got = ::read(fd.get(), piece_.data(), piece_.size());
    if (got <= 0 && !(got < 0 && errno == EINTR)) fd.Reset();
    return {piece_.data(), static_cast<std::size_t>(std::max<ssize_t>(0, got))};
  }
  void KeepErrors(std::string_view bytes) {
    said_ += bytes;
    if (said_.size() > kKeptErrors) said_.erase(0, said_.size() - kKeptErrors);
  }

  pid_t pid_;
  Fd output_;
  Fd errors_;
  std::string said_;
  std::array<char, 1U << 16U> piece_{};
};

}  // namespace

Result<std::string> Kubectl::Run(const std::vector<std::string>& words, Input input) const {
  std::string output;
  const auto take = [&output](std::string_view bytes) {
    output += bytes;
    return true;
  };
  LOCKSTEP_TRY(Stream(words, take, std::chrono::steady_clock::now() + kRunTime, input));
  return output;
}

Result<void> Kubectl::Stream(const std::vector<std::string>& words, const OnOutput& on_output,
                             std::optional<SteadyTime> deadline, Input input) const {
  std::vector<std::string> all = {program_};
  all.insert(all.end(), words.begin(), words.end());
  all.insert(all.end(), flags_.begin(), flags_.end());
  LOCKSTEP_TRY(Child child, Child::Start(std::move(all), input));
  LOCKSTEP_TRY(const bool ended, child.Pump(on_output, deadline));
  if (!ended) return {};
  const int status = child.Wait();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::cerr << child.said();
    return {};
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted && child.said().empty()) {
    return Error{ErrorCode::kNotFound, program_ + " cannot be started: is it installed and in PATH?"};
  }
  if (WIFSIGNALED(status)) {
    return Error{ErrorCode::kCancelled, "signal " + std::to_string(WTERMSIG(status)) + " ended kubectl"};
  }
  return ExplainFailure(child.said());
}

}  // namespace lockstep::kubectl_plugin
