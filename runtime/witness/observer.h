#pragma once
// What `lockstep program` reports to its supervisor about a program that a witness observes, as a pure function of what
// it read from the page: the messages that lockstep-rank sends about itself, so progress, hangs, stragglers and goodput
// are judged alike. One per start of the program; one thread.
//
//   activity of the page   phase of the rank
//   (before the first step) program: nothing is known, and no bound applies
//   evaluate, save          evaluate, snapshot
//   data for a second       load, repeated: no step is expected meanwhile
//   all others              train

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/witness/page.h"
#include "runtime/witness/trainer_status.h"

namespace lockstep::witness {

class Observer {
 public:
  explicit Observer(int64_t round) : round_(round) {}

  // To be called about ten times a second. `is_stopped`: the kernel does not let the process run (SIGSTOP, a debugger,
  // a frozen control group).
  [[nodiscard]] std::vector<protocol::FromRank> Observe(const Observation& seen, bool is_stopped,
                                                        SteadyTime now);
  // What the framework of the program has posted, and what the page says at that moment.
  void Take(const TrainerStatus& status, const Observation& seen);

 private:
  void ReportSteps(const Observation& seen, std::vector<protocol::FromRank>& messages);
  void ReportPhase(const Observation& seen, bool is_stopped, SteadyTime now,
                   std::vector<protocol::FromRank>& messages);

  const int64_t round_;
  int64_t first_step_ = 0;  // the step from which this process continued, as far as it is known
  TrainerStatus status_;    // the newest
  std::optional<protocol::RankPhase> phase_;  // the newest reported; none: the program has taken no step
  int64_t reported_steps_ = 0;
  double reported_step_at_ = 0;
  protocol::StepTimes step_times_;
  SteadyTime data_since_ = SteadyTime::max();  // max: it does not read data
};

// The answer to a Ping for a program that is not stopped. Between two steps a program may do anything, so its bound is
// that of the first step. One that runs ahead of its collectives, as on a GPU, waits for its peers wherever it reads a
// result, such as in loss.item(); no hook sees where. So it counts as waiting: a rank that waits must never be blamed.
[[nodiscard]] protocol::Pong AnswerFor(const Observation& seen);

}  // namespace lockstep::witness
