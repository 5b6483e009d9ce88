#pragma once
// Whether one rank hangs: from what it says, and from how long it took for the same thing before. Pure: time
// is an argument. One per rank, kept over its process's respawns, so that it learns once. One thread.
//
//   init, load, sync, save, first step of a round    healthPolicy.firstStepTimeoutSeconds
//   train                                            stepTimeoutSeconds; where absent, learned
//   evaluate, snapshot                               learned; the first time firstStepTimeoutSeconds
//   average                                          the same, from the times of whole windows: it ends when
//                                                    the slowest rank has ended its own
//   load in one of those phases                      none: it waits for data, says so again and again, and
//                                                    goes on with the phase
//   waiting for a place in a round                   none: rendezvous.joinTimeoutSeconds bounds that
//   program (one of the user's own runs)             none, until a witness reports its first step
//
// Learned: the median of the newest times, by stepTimeoutFactor, 10 s at least. A rank past its bound is
// asked. One that does not answer hangs, and so does one that computes. One that waits for its peers is the
// victim of another, whose supervisor finds it. Where none is found, as with a broken network, the round is
// given up past twice the bound, and not within 10 s of it; a rank that does not leave it then hangs, too.
// A program that answers that it may take long has the bound of the first step.
// At the end of a round each rank is asked, whatever it is at: no other can train before it leaves. One that
// does not answer within 10 s hangs.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::launch {

// What runs is not known, and whether it makes progress neither.
inline constexpr std::string_view kProgramPhase = "program";

struct HangFinding {
  enum class Kind {
    kNothing,
    kAsk,           // send it a Ping
    kRoundIsStuck,  // it waits for peers that nobody found to hang: leave the round, keep the process
    kHangs          // once for each silence
  };
  Kind kind = Kind::kNothing;
  std::string phase;
  double silent_seconds = 0;
  double bound_seconds = 0;
  std::string why;  // "does not answer", …

  [[nodiscard]] std::string ToString() const;
};

// The newest times that something took.
class TypicalTime {
 public:
  void Add(double seconds);
  // Nothing before the first.
  [[nodiscard]] std::optional<double> Median() const;

 private:
  std::deque<double> newest_;
};

class HangDetector {
 public:
  explicit HangDetector(const protocol::HealthConfig& config) : config_(config) {}

  void ProcessStarted(SteadyTime now);
  void Assigned(SteadyTime now);
  // The rank was told that its round is over.
  void ToldToLeave(SteadyTime now);
  void Heard(const protocol::FromRank& message, SteadyTime now);
  // To be called several times a second.
  [[nodiscard]] HangFinding Look(SteadyTime now);

 private:
  void OnPhase(const std::string& phase, SteadyTime now);
  void OnProgress(const protocol::Progress& progress, SteadyTime now);
  void LearnWindow(int64_t step, SteadyTime now);
  void BeginPhase(const std::string& phase, SteadyTime now);
  void SignOfLife(SteadyTime now);
  void NewSilence();
  void ForgiveOwnPause(SteadyTime now);
  [[nodiscard]] std::optional<double> Bound() const;
  [[nodiscard]] double Learned(const std::optional<double>& typical) const;
  [[nodiscard]] HangFinding Judge(double silent, double bound, SteadyTime now);
  void AskAgain(SteadyTime now);
  [[nodiscard]] HangFinding JudgeLeaving(SteadyTime now);

  protocol::HealthConfig config_;
  std::string phase_;  // empty: waits for a place in a round
  bool first_step_ = true;
  int64_t last_step_ = 0;                   // with those of the window under way
  int64_t committed_step_ = 0;              // without them
  std::optional<SteadyTime> committed_at_;  // in this round
  SteadyTime since_{};                      // last sign of life of the training thread
  SteadyTime loading_{};                    // or that it waits for data, from which no time is learned
  TypicalTime step_times_;
  int64_t known_steps_ = 0;  // that step_times_ stands for
  TypicalTime window_times_;
  std::map<std::string, TypicalTime> phase_times_;
  std::optional<SteadyTime> asked_;  // newest question in this silence
  std::optional<protocol::Pong> answer_;
  std::optional<SteadyTime> told_to_leave_;  // until it answers
  bool gave_round_up_ = false;               // in this silence
  bool found_ = false;                       // this silence was reported
  std::optional<SteadyTime> last_look_;
};

}  // namespace lockstep::launch
