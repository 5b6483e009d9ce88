#pragma once
// Reads what one rank process writes to stdout and stderr, writes it on to this process's own, labelled with
// the rank's place, sends it to the person at `lockstep run`, and keeps the last lines of stderr. A thread of its own reads at once, so a rank waits
// for it only where the pod's log is not taken off.

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "runtime/common/base/file.h"
#include "runtime/common/base/mutex.h"
#include "runtime/launch/log_lines.h"
#include "runtime/launch/program_output.h"

namespace lockstep::launch {

class RankOutput {
 public:
  // The reading ends of two pipes. `sender`: absent where nobody but the log shall have the lines.
  static Result<std::unique_ptr<RankOutput>> Start(Fd out, Fd err, int local_rank,
                                                   ProgramOutputSender* sender);
  ~RankOutput() { (void)Finish(); }

  // From now on lines are labelled with this place. Any thread.
  void SetPlace(int64_t round, int rank);
  // Once the process is dead: reads what is left in the pipes, which a child of the rank may still hold open,
  // and returns the last lines of stderr.
  [[nodiscard]] std::string Finish();

 private:
  struct Stream {
    Fd fd;
    std::FILE* target = nullptr;
    LineCutter cutter{};
  };
  RankOutput(Fd out, Fd err, Fd finished, int local_rank, ProgramOutputSender* sender);
  void Read();
  void TakeAll(Stream& stream);
  void Pass(const Stream& stream, const std::string& line);

  Stream streams_[2];     // the reading thread's
  LastLines last_lines_;  // the reading thread's, then Finish's
  const Fd finished_;     // an eventfd, written by Finish
  ProgramOutputSender* const sender_;
  Mutex mutex_;
  RankPlace place_ LOCKSTEP_GUARDED_BY(mutex_);
  std::jthread reader_;
};

}  // namespace lockstep::launch
