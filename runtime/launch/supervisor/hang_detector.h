#pragma once
// Detects whether one rank hangs, from its messages and from how long the same operations took before. Pure:
// time is an argument. There is one per rank, kept when its process restarts, so that what was learned is
// kept. One thread.
//
//   init, load, sync, save, first step of a round    healthPolicy.firstStepTimeoutSeconds
//   train                                            stepTimeoutSeconds; learned if absent
//   evaluate, snapshot                               learned; the first time firstStepTimeoutSeconds
//   average                                          learned from the times of whole windows: it ends when
//                                                    the slowest rank has finished its own
//   load in one of those phases                      none: the rank waits for data, reports that repeatedly,
//                                                    and then continues the phase
//   evaluate, reported again                         the bound counts from there: a batch was evaluated
//   waiting for an assignment to a round             none: rendezvous.joinTimeoutSeconds bounds that
//   program (of the user)                            none, until a witness reports its first step
//
// Learned bound: the median of the newest times, times stepTimeoutFactor, at least 10 s. A rank that exceeds
// its bound gets a Ping. If it does not answer, it hangs; if it answers that it is computing, it hangs, too.
// A program that answers that it may take long has the bound of the first step instead of a learned one. If
// it waits for its peers, another rank is responsible, and that rank's supervisor detects it. If none does,
// as with a broken network, the round is given up after twice the bound, and at least 10 s after it, or of a
// program that may take long the learned bound after it; a rank that does not leave it then hangs, too. At
// the end of a round each rank gets a Ping in any phase, because no rank can train in the next round before
// all have left. A rank that does not answer within 10 s hangs; if the round was aborted, so does one that still
// answers that it waits for its peers, because nothing in that round is worth waiting for.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

struct HangFinding {
  enum class Kind {
    kNothing,
    kAsk,              // send it a Ping
    kRoundSeemsStuck,  // kRoundIsStuck follows in 3 s; once per silence
    kRoundIsStuck,     // it waits for peers and no rank was found to hang: leave the round, keep the process
    kHangs             // reported once per silence
  };
  Kind kind = Kind::kNothing;
  protocol::RankPhase phase{};
  double silent_seconds = 0;
  double bound_seconds = 0;
  std::string why;  // "does not answer", …

  [[nodiscard]] std::string ToString() const;
};

// The median of the newest durations of an operation.
class TypicalTime {
 public:
  void Add(double seconds);
  // Returns nothing before the first value.
  [[nodiscard]] std::optional<double> Median() const;

 private:
  std::deque<double> newest_;
};

class HangDetector {
 public:
  explicit HangDetector(const protocol::HealthConfig& config) : config_(config) {}

  void ProcessStarted(SteadyTime now);
  void Assigned(SteadyTime now);
  // The rank was asked to leave its round.
  void LeaveRequested(protocol::LeaveMode mode, SteadyTime now);
  void OnMessage(const protocol::FromRank& message, SteadyTime now);
  // Must be called several times a second.
  [[nodiscard]] HangFinding Look(SteadyTime now);

 private:
  void OnPhase(protocol::RankPhase phase, SteadyTime now);
  void OnProgress(const protocol::Progress& progress, SteadyTime now);
  void LearnWindow(int64_t step, SteadyTime now);
  void BeginPhase(std::optional<protocol::RankPhase> phase, SteadyTime now);
  void SignOfLife(SteadyTime now);
  void NewSilence();
  void ForgiveOwnPause(SteadyTime now);
  [[nodiscard]] std::optional<double> Bound() const;
  // A step that healthPolicy.stepTimeoutSeconds limits.
  [[nodiscard]] bool HasBoundOfTheJob() const;
  [[nodiscard]] double Learned(const std::optional<double>& typical) const;
  [[nodiscard]] HangFinding Judge(double silent, double bound, SteadyTime now);
  void AskAgain(SteadyTime now);
  [[nodiscard]] HangFinding JudgeLeaving(SteadyTime now);

  protocol::HealthConfig config_;
  std::optional<protocol::RankPhase> phase_;  // none: the rank waits for an assignment
  bool first_step_ = true;
  int64_t last_step_ = 0;                   // includes the steps of the current window
  int64_t committed_step_ = 0;              // excludes them
  std::optional<SteadyTime> committed_at_;  // in this round
  SteadyTime since_{};                      // last sign of life of the training thread
  SteadyTime alive_{};  // or another sign, which begins no phase: no duration is learned from it
  TypicalTime step_times_;
  int64_t known_steps_ = 0;  // steps that step_times_ covers
  TypicalTime window_times_;
  std::map<protocol::RankPhase, TypicalTime> phase_times_;
  std::optional<SteadyTime> asked_;  // newest Ping in this silence
  std::optional<protocol::Pong> answer_;
  // When the rank was asked to leave; until it answers, or has left what was aborted.
  std::optional<SteadyTime> leave_requested_;
  protocol::LeaveMode leave_mode_{};
  bool warned_ = false;         // in this silence: kRoundSeemsStuck
  bool gave_round_up_ = false;  // in this silence
  bool found_ = false;          // this silence was reported
  std::optional<SteadyTime> last_look_;
};

}  // namespace lockstep::launch
