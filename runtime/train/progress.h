#pragma once
// Keeps the numbers that the supervisor exports and sends them, at most every 100 ms; the first of a round
// and the last of all are always sent. Step thread.

#include <cstdint>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/train/phase_clock.h"
#include "runtime/train/step.h"

namespace lockstep::train {

class ProgressReporter {
 public:
  ProgressReporter(protocol::ControlLink& link, const PhaseClock& phases, const Clock& clock,
                   int64_t total_steps, int64_t steps_per_epoch);

  void EnterRound(int64_t round, int64_t step);
  void Committed(int64_t step, const StepReport& report);
  void Repeating() { ++progress_.repeated_steps_total; }
  void Phase(const std::string& phase) { link_.Send(protocol::PhaseChanged{phase}); }
  void SendNow();

 private:
  protocol::ControlLink& link_;
  const PhaseClock& phases_;
  const Clock& clock_;
  const double steps_per_epoch_;
  protocol::Progress progress_;
  SteadyTime last_sent_{};
  SteadyTime last_commit_{};
  bool first_of_round_ = true;
};

}  // namespace lockstep::train
