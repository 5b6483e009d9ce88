#pragma once
// What the ranks of a program write, on its way to the person at `lockstep run`: each worker sends whole
// lines through a pipe, and `lockstep run` writes them to its own standard output and standard error. The
// worker's log has the same lines, whether or not somebody reads the pipe.

#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::launch {

enum class OutputStream { kOutput, kError };

// In the worker. Any thread; it waits where the reader does not keep up, as a program does that writes to a
// terminal.
class ProgramOutputSender {
 public:
  explicit ProgramOutputSender(Fd pipe) : pipe_(std::move(pipe)) {}

  // `line`: without its newline.
  void Send(int rank, OutputStream stream, std::string_view line);

 private:
  Mutex mutex_;
  const Fd pipe_;
};

// In `lockstep run`, one for each worker. The destructor returns once the worker has closed its end and all
// of its lines are written.
class ProgramOutputPrinter {
 public:
  // `with_prefix`: "[rank 1] " before each line.
  ProgramOutputPrinter(Fd pipe, bool with_prefix);

 private:
  void Read();
  void Print(std::string_view message) const;

  const Fd pipe_;
  const bool with_prefix_;
  std::jthread reader_;
};

}  // namespace lockstep::launch
