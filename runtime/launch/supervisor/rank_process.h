#pragma once
// One rank process with its control socket, whose messages are decoded on a reader thread, and its output,
// which is read on another. Its end is handled after both the exit status and the end of the socket were
// observed, so that its last messages come first.

#include <functional>
#include <memory>
#include <thread>

#include "runtime/common/protocol/rank_control.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/supervisor/rank_output.h"

namespace lockstep::launch {

class RankProcess {
 public:
  struct Callbacks {
    std::function<void(protocol::FromRank)> on_message;  // on the reader thread
    std::function<void()> on_socket_end;                 // on the reader thread, last
  };

  // `command` is the path of lockstep-rank, or the command for the rank of a program (program_rank.h). Owned
  // and used by one thread, which must outlive the process. `sender`: as in RankOutput.
  static Result<std::unique_ptr<RankProcess>> Start(std::vector<std::string> command, int local_rank,
                                                    Callbacks callbacks,
                                                    ProgramOutputSender* sender = nullptr);
  ~RankProcess();  // kills the process; the signal thread still gets its exit

  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns false if the rank has closed its socket: its end will be reported.
  bool Send(const protocol::ToRank& message);
  // Call after its end: the last lines that it wrote to stderr.
  [[nodiscard]] std::string TakeLastLines() { return output_->Finish(); }
  // Call after the end of the program that it ran: the last lines that this program wrote to stderr.
  [[nodiscard]] std::string TakeLastLinesOfProgram() { return output_->FinishProgram(); }

 private:
  RankProcess(pid_t pid, std::unique_ptr<RankOutput> output, Fd socket, Callbacks callbacks);

  const pid_t pid_;
  const std::unique_ptr<RankOutput> output_;
  Fd socket_;
  std::jthread reader_;
};

}  // namespace lockstep::launch
