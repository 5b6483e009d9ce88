#pragma once
// A child of the test that runs a function of the test in a process of its own, so that it can be stopped and
// killed, and lines of text between the two. Start children before the test itself touches LibTorch: fork
// copies no threads.

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "runtime/common/base/file.h"

namespace lockstep::testing {

// One end of a stream socket, read and written line by line.
class LineChannel {
 public:
  explicit LineChannel(Fd fd) : fd_(std::move(fd)) {}
  void Send(const std::string& line);  // to a closed end: lost
  // The next line, or nothing where none came in time or the other end has closed.
  [[nodiscard]] std::optional<std::string> Receive(std::chrono::milliseconds timeout);
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
  std::string buffer_;
  bool closed_ = false;
};

class ForkedProcess {
 public:
  // The child runs `body` and ends with what it returns; it never returns into the test.
  explicit ForkedProcess(const std::function<int(LineChannel& parent)>& body);
  ~ForkedProcess();  // kills what still runs
  ForkedProcess(ForkedProcess&& other) noexcept;

  [[nodiscard]] LineChannel& channel() { return channel_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, 128 + signal where one ended it, or nothing after the time-out.
  [[nodiscard]] std::optional<int> Wait(std::chrono::milliseconds timeout);

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
  LineChannel channel_;
};

}  // namespace lockstep::testing
