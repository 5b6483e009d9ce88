#pragma once
// One rank process: started with its control socket, whose lines are decoded on a reader thread, and with its
// output read on another. Its end is reported once both the exit status and the end of the socket were seen
// (so that its last words come first).

#include <functional>
#include <memory>
#include <thread>

#include "runtime/common/protocol/rank_control.h"
#include "runtime/launch/process.h"
#include "runtime/launch/rank_output.h"

namespace lockstep::launch {

class RankProcess {
 public:
  struct Callbacks {
    std::function<void(protocol::FromRank)> on_message;  // on the reader thread
    std::function<void()> on_socket_end;                 // on the reader thread, last
  };

  // `command`: lockstep-rank's path, or what starts the rank of a program (program_rank.h). Owned and used by
  // one thread (which must outlive the process). `sender`: as RankOutput's.
  static Result<std::unique_ptr<RankProcess>> Start(std::vector<std::string> command, int local_rank,
                                                    Callbacks callbacks,
                                                    ProgramOutputSender* sender = nullptr);
  ~RankProcess();  // kills the process; its exit is still reported to the signal thread

  [[nodiscard]] pid_t pid() const { return pid_; }
  // False where the rank is gone already: its end will be reported.
  bool Tell(const protocol::ToRank& message);
  // After its end: the last lines it wrote to stderr.
  [[nodiscard]] std::string TakeLastLines() { return output_->Finish(); }

 private:
  RankProcess(pid_t pid, std::unique_ptr<RankOutput> output, Fd socket, Callbacks callbacks);

  const pid_t pid_;
  const std::unique_ptr<RankOutput> output_;
  Fd socket_;
  std::jthread reader_;
};

}  // namespace lockstep::launch
