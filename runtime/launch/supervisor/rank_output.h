#pragma once
// Reads what one rank process writes to stdout and stderr, copies it to this process's own streams, labelled
// with the rank, forwards it to the terminal of `lockstep run`, and keeps the last lines of stderr. A
// separate thread reads continuously, so a rank blocks only if the pod's log is not read.

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/launch/process/log_lines.h"
#include "runtime/launch/supervisor/program_output.h"

namespace lockstep::launch {

class RankOutput {
 public:
  // `out` and `err` are the reading ends of two pipes. `sender`: null if lines go to the log only.
  static Result<std::unique_ptr<RankOutput>> Start(Fd out, Fd err, int local_rank,
                                                   ProgramOutputSender* sender);
  ~RankOutput() { (void)Finish(); }

  // Labels lines with this round and rank from now on. Any thread.
  void SetPlace(int64_t round, int rank);
  // Call after the process is dead: reads what is left in the pipes, which a child of the rank may still hold
  // open, and returns the last lines of stderr.
  [[nodiscard]] std::string Finish();
  // Call after a program of the rank is dead: the same for what this program has written. Then reads on.
  [[nodiscard]] std::string FinishProgram();

 private:
  struct Stream {
    Fd fd;
    std::FILE* target = nullptr;
    LineCutter cutter{};
  };
  RankOutput(Fd out, Fd err, Fd finished, int local_rank, ProgramOutputSender* sender);
  void Read();
  void TakeAll(Stream& stream);
  void Pass(const Stream& stream, const OutputLine& line);

  Stream streams_[2];     // owned by the reading thread
  LastLines last_lines_;  // owned by the reading thread, then by Finish
  const Fd finished_;     // an eventfd, written by Finish
  ProgramOutputSender* const sender_;
  Mutex mutex_;
  RankPlace place_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread reader_;
};

}  // namespace lockstep::launch
