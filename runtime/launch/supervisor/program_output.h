#pragma once
// Forwards the output of a program's ranks to the terminal of `lockstep run`: each worker sends whole lines
// through a pipe, and `lockstep run` writes them to its own stdout and stderr. The worker's log has the same
// lines, whether or not the pipe is read.

#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::launch {

enum class OutputStream { kOutput, kError };

// Used in the worker. Any thread; blocks if the reader is slow, as a program that writes to a terminal does.
class ProgramOutputSender {
 public:
  explicit ProgramOutputSender(Fd pipe) : pipe_(std::move(pipe)) {}

  // `line` has no newline.
  void Send(int rank, OutputStream stream, std::string_view line);

 private:
  Mutex mutex_;
  const Fd pipe_;
};

// Used in `lockstep run`, one per worker. The destructor returns when the worker has closed its end and all
// its lines are written.
class ProgramOutputPrinter {
 public:
  // `with_prefix`: write "[rank 1] " before each line.
  ProgramOutputPrinter(Fd pipe, bool with_prefix);

 private:
  void Read();
  void Print(std::string_view message) const;

  const Fd pipe_;
  const bool with_prefix_;
  std::jthread reader_;
};

}  // namespace lockstep::launch
