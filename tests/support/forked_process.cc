#include "tests/support/forked_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>

namespace lockstep::testing {

void LineChannel::Send(const std::string& line) {
  const std::string bytes = line + "\n";
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<std::size_t>(n);
  }
}

std::optional<std::string> LineChannel::Receive(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    if (const std::size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    if (closed_) return std::nullopt;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd poll_fd{fd_.get(), POLLIN, 0};
    if (::poll(&poll_fd, 1, static_cast<int>(std::max<int64_t>(0, left.count()))) <= 0) return std::nullopt;
    std::array<char, 4096> bytes{};
    const ssize_t n = ::recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (n <= 0) {
      closed_ = true;
    } else {
      buffer_.append(bytes.data(), static_cast<std::size_t>(n));
    }
  }
}

ForkedProcess::ForkedProcess(const std::function<int(LineChannel&)>& body) : channel_{Fd()} {
  std::array<int, 2> ends{};
  LOCKSTEP_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Fd mine(ends[0]);
  Fd theirs(ends[1]);
  std::fflush(nullptr);
  pid_ = ::fork();
  LOCKSTEP_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that dies leaves nobody behind
    ::signal(SIGPIPE, SIG_IGN);          // as in lockstep-rank: peers that died are an error of the write
    mine.Reset();
    LineChannel parent(std::move(theirs));
    ::_exit(body(parent));
  }
  channel_ = LineChannel(std::move(mine));
}

ForkedProcess::~ForkedProcess() {
  if (pid_ <= 0 || status_.has_value()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

ForkedProcess::ForkedProcess(ForkedProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), status_(other.status_), channel_(std::move(other.channel_)) {}

void ForkedProcess::Signal(int signal) const { ::kill(pid_, signal); }

std::optional<int> ForkedProcess::Wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (!status_.has_value()) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // waitpid has no deadline of its own
    }
  }
  return status_;
}

}  // namespace lockstep::testing
