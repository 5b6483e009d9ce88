#pragma once
// What the rank of a program of the user's own does, as a pure state machine: what its supervisor says and
// what becomes of the command in, actions out. program_rank.h carries them out; one thread calls it.
//
//   announce (a new port) ─► assignment ─► the command runs
//     ├─► the round is over: SIGTERM, then SIGKILL ─► announce …, or, where not even that ends it,
//     │   this process ends
//     ├─► exit 0: Finished, announce; the supervisor knows what follows
//     └─► another end: Failed, and this process ends with its code

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

// How the command ended, or why it could not be started.
struct ProgramEnd {
  int exit_code = 0;  // 128 + signal where a signal ended it
  int signal = 0;     // 0: none
  std::string error;  // of starting it; empty: it was started
};

// ---- actions, executed in order
// Say Ready with a port, chosen at random: hardly one of a round before.
struct Announce {};
struct StartProgram {
  protocol::RankAssignment assignment;
};
// To the command and all that it started.
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
using ProgramAction = std::variant<Announce, StartProgram, SignalProgram, Say, EndRank, AnswerForProgram>;
using ProgramActions = std::vector<ProgramAction>;

class ProgramLife {
 public:
  // `command`: as people know it.
  explicit ProgramLife(std::string command) : command_(std::move(command)) {}

  [[nodiscard]] ProgramActions Start() const;
  [[nodiscard]] ProgramActions On(const protocol::ToRank& message, SteadyTime now);
  [[nodiscard]] ProgramActions On(const ProgramEnd& end);
  // To be called often, and at the latest when `deadline` is reached.
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
  std::optional<SteadyTime> deadline_;  // for its end, before SIGKILL or after; absent: nobody asked for it
  bool is_killed_ = false;              // by SIGKILL, and has not ended
};

// What torchrun sets, for the round; NAME=value. `omp_num_threads`: 0 leaves the variable alone.
[[nodiscard]] std::vector<std::string> ProgramEnvironment(const protocol::RankAssignment& assignment,
                                                          const protocol::WorkerConfig& config,
                                                          int omp_num_threads);

}  // namespace lockstep::launch
