#pragma once
// The rank of a user's program as a pure state machine: messages of its supervisor and the end of the command
// are inputs, actions are outputs. program_rank.h executes them; one thread calls it.
//
//   announce (a new port) ─► assignment ─► the command runs
//     ├─► the round is over: SIGTERM, then SIGKILL ─► announce …; if SIGKILL does not end it,
//     │   this process exits
//     ├─► exit 0: Finished, announce; the supervisor decides what follows
//     └─► any other end: Failed, announce; the supervisor decides what follows

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/launch/program_notice.h"

namespace lockstep::launch {

// How the command ended, or why it could not be started.
struct ProgramEnd {
  int exit_code = 0;  // 128 + signal if a signal ended it
  int signal = 0;     // 0: none
  std::string error;  // of the start; empty: it was started
};

// ---- actions, executed in order
// Report Ready with a random port, which is unlikely to be that of an earlier round.
struct Announce {};
struct StartProgram {
  protocol::RankAssignment assignment;
};
// Before the signal that ends the command.
struct GiveNotice {
  Notice notice;
};
// To the command and all processes that it started.
struct SignalProgram {
  int signal = 0;
};
struct Say {
  protocol::FromRank message;
};
struct EndRank {
  int exit_code = 0;
};
// With what the witness observes; a program that is stopped does not answer.
struct AnswerForProgram {};
using ProgramAction =
    std::variant<Announce, StartProgram, GiveNotice, SignalProgram, Say, EndRank, AnswerForProgram>;
using ProgramActions = std::vector<ProgramAction>;

class ProgramLife {
 public:
  // `command`: its text for messages.
  explicit ProgramLife(std::string command) : command_(std::move(command)) {}

  [[nodiscard]] ProgramActions Start() const;
  [[nodiscard]] ProgramActions On(const protocol::ToRank& message, SteadyTime now);
  [[nodiscard]] ProgramActions On(const ProgramEnd& end);
  // Must be called at the latest when `deadline` is reached.
  [[nodiscard]] ProgramActions Tick(SteadyTime now);
  [[nodiscard]] std::optional<SteadyTime> deadline() const { return deadline_; }
  [[nodiscard]] bool is_running() const { return state_ == State::kRunning; }

 private:
  enum class State { kIdle, kRunning, kLeaving, kStopping };

  void Stop(const protocol::Stop& stop, SteadyTime now, ProgramActions& actions);
  [[nodiscard]] std::string Describe(const ProgramEnd& end) const;

  const std::string command_;
  State state_ = State::kIdle;
  int64_t round_ = 0;
  std::optional<SteadyTime>
      deadline_;            // of its end, before or after SIGKILL; absent: it was not asked to end
  bool is_killed_ = false;  // SIGKILL was sent and it has not ended
};

// The variables that torchrun sets, for the round, as NAME=value. If `omp_num_threads` is 0, OMP_NUM_THREADS
// is not set.
[[nodiscard]] std::vector<std::string> ProgramEnvironment(const protocol::RankAssignment& assignment,
                                                          const protocol::WorkerConfig& config,
                                                          int omp_num_threads);

}  // namespace lockstep::launch
