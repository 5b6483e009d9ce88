#pragma once
// The rank of a user's program as a pure state machine: messages of its supervisor and the end of the command
// are inputs, actions are outputs. program_rank.h executes them; one thread calls it.
//
//   announce (a new port) ─► assignment ─► the command runs
//     ├─► the round is over: SIGTERM, then SIGKILL ─► announce …; if SIGKILL does not end it,
//     │   this process exits
//     ├─► exit 0: Finished, announce; the supervisor decides what follows
//     └─► any other end: Failed, announce; the supervisor decides what follows
//
// A program may join (README.md, "Programs that join"): it connects to the socket of its rank and sends Ready. Then its own
// messages and those of the supervisor pass through, and it keeps its process through the rounds:
//
//   the command runs ─► Ready of the program ─► the assignment that it was started with
//     ├─► the round is over: the program is notified, and sends Ready again ─► assignment …
//     ├─► the connection is closed: the program has to end soon after the end of the round
//     └─► it fails: Failed; the command starts again, without a round, and its Ready leads to the next one

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/launch/program/program_notice.h"

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
// To a program that has joined.
struct SendToProgram {
  protocol::ToRank message;
};
struct Say {
  protocol::FromRank message;
};
struct EndRank {
  int exit_code = 0;
};
// With what the witness observes; a program that is stopped does not answer.
struct AnswerForProgram {};
// For a program that has joined: it may take long. Its own answer says more, but needs the interpreter's lock, which an extension
// may hold for long. One that is stopped does not answer.
struct AnswerForJoined {};
using ProgramAction = std::variant<Announce, StartProgram, GiveNotice, SignalProgram, SendToProgram, Say,
                                   EndRank, AnswerForProgram, AnswerForJoined>;
using ProgramActions = std::vector<ProgramAction>;

class ProgramLife {
 public:
  // `command`: its text for messages.
  explicit ProgramLife(std::string command) : command_(std::move(command)) {}

  [[nodiscard]] ProgramActions Start() const;
  [[nodiscard]] ProgramActions On(const protocol::ToRank& message, SteadyTime now);
  [[nodiscard]] ProgramActions On(const ProgramEnd& end);
  // What the program sends, and that it has closed its connection.
  [[nodiscard]] ProgramActions OnProgram(const protocol::FromRank& message);
  [[nodiscard]] ProgramActions OnDisconnected(SteadyTime now);
  // Must be called at the latest when `deadline` is reached.
  [[nodiscard]] ProgramActions Tick(SteadyTime now);
  [[nodiscard]] std::optional<SteadyTime> deadline() const { return deadline_; }
  [[nodiscard]] bool is_running() const { return state_ == State::kRunning; }
  // Whether the program reports its steps itself: it has joined, or the one before it had.
  [[nodiscard]] bool reports_itself() const { return joins_; }

 private:
  enum class State { kIdle, kRunning, kLeaving, kStopping };

  [[nodiscard]] ProgramActions Handle(const protocol::RankAssignment& assignment, SteadyTime now);
  [[nodiscard]] ProgramActions Handle(const protocol::RoundOver& over, SteadyTime now);
  [[nodiscard]] ProgramActions Handle(const protocol::Stop& stop, SteadyTime now);
  [[nodiscard]] ProgramActions Handle(const protocol::NodeDeparts& departs, SteadyTime now) const;
  [[nodiscard]] ProgramActions Handle(const protocol::KillProgram& kill, SteadyTime now) const;
  [[nodiscard]] ProgramActions Handle(const protocol::StartFirst& start, SteadyTime now);
  [[nodiscard]] ProgramActions Handle(const protocol::Ping& ping, SteadyTime now) const;
  [[nodiscard]] ProgramActions Handle(const protocol::Save& save, SteadyTime now);
  [[nodiscard]] ProgramActions Handle(const protocol::ProfileWanted& wanted, SteadyTime now);
  [[nodiscard]] ProgramActions PassOnceJoined(const protocol::ToRank& request);
  [[nodiscard]] ProgramActions OnReady(const protocol::Ready& ready);
  [[nodiscard]] ProgramActions StartInRound(const protocol::RankAssignment& assignment);
  [[nodiscard]] ProgramActions StartWithoutRound();
  [[nodiscard]] protocol::Failed FailureOf(const ProgramEnd& end) const;
  [[nodiscard]] std::string Describe(const ProgramEnd& end) const;

  const std::string command_;
  State state_ = State::kIdle;
  protocol::RankAssignment assignment_;      // the newest
  bool in_round_ = false;                    // the round of that is not over
  bool joined_ = false;                      // the program is connected and has sent Ready
  bool joins_ = false;                       // it had joined, or has been started without a round
  bool said_finished_ = false;               // itself, in this round
  std::optional<protocol::Failed> failure_;  // as it says itself; it ends next
  std::vector<protocol::ToRank> requests_;   // from before it joined
  std::optional<SteadyTime> deadline_;       // of its end, before or after SIGKILL; absent: it may run
  bool is_killed_ = false;                   // SIGKILL was sent at the deadline, and it has not ended
};

// The variables that torchrun sets, for the round, as NAME=value. If `omp_num_threads` is 0, OMP_NUM_THREADS
// is not set.
[[nodiscard]] std::vector<std::string> ProgramEnvironment(const protocol::RankAssignment& assignment,
                                                          const protocol::WorkerConfig& config,
                                                          int omp_num_threads);

}  // namespace lockstep::launch
