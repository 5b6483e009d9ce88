#pragma once
// Maintains the numbers that the supervisor exports and sends them at most every 100 ms; the first of a round
// and the last of all are always sent. Rank 0 also logs them every ten seconds. Every rank keeps the history,
// because any rank may become the one that stores it. Step thread.

#include <cstdint>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/common/protocol/history.h"
#include "runtime/train/loop/evaluation.h"
#include "runtime/train/state/training_state.h"
#include "runtime/train/step/phase_clock.h"
#include "runtime/train/step/stepper.h"

namespace lockstep::train {

class ProgressReporter {
 public:
  // `logs_always`: log on this rank even if it is not rank 0. `tokens_per_sample` is 0 if samples are not
  // text.
  ProgressReporter(protocol::ControlLink& link, const PhaseClock& phases, const Clock& clock,
                   int64_t total_steps, int64_t steps_per_epoch, int64_t tokens_per_sample, bool logs_always);

  void EnterRound(const protocol::RankAssignment& assignment, int64_t step, StateSource source);
  void Committed(int64_t step, const StepReport& report);
  // Records the evaluation after the newest step.
  void Evaluated(const Evaluation& result);
  // Reports the steps of the current window that are taken but not committed, as a sign of life.
  void UnderWay(int64_t steps);
  // Bytes over all rounds.
  void Communicated(int64_t bytes) { usage_.communication_bytes_total = bytes; }
  void Repeating(int64_t steps) { progress_.repeated_steps_total += steps; }
  void Phase(protocol::RankPhase phase) { link_.Send(protocol::PhaseChanged{phase}); }
  // A sign of life in a long phase, sent at most once a second.
  void GoesOn(protocol::RankPhase phase);
  void SendNow();
  // The history of the steps in which this process participated.
  [[nodiscard]] const std::vector<protocol::HistoryRecord>& history() const { return history_; }

 private:
  void Send();
  [[nodiscard]] bool Logs() const { return logs_always_ || rank_ == 0; }
  [[nodiscard]] protocol::HistoryRecord RecordOf(protocol::HistoryKind kind) const;
  // Of the time since the last call of it.
  [[nodiscard]] double CommunicationSeconds();
  void LogStep();
  void CountCorrupt(int64_t step, const StepReport& report);

  protocol::ControlLink& link_;
  const PhaseClock& phases_;
  const Clock& clock_;
  const double steps_per_epoch_;
  const int64_t tokens_per_sample_;
  protocol::Progress progress_;
  protocol::Usage usage_;
  int64_t corrupt_in_epoch_ = 0;    // over all ranks, in the steps from …
  int64_t corrupt_since_step_ = 0;  // … this one on: the first step of the epoch that this process has seen
  const bool logs_always_;
  int rank_ = 0;
  int world_ = 1;
  std::vector<protocol::HistoryRecord> history_;
  SteadyTime last_sent_{};
  SteadyTime last_logged_{};
  SteadyTime last_commit_{};
  double communicated_seconds_ = 0;  // of phases_, at the last commit
  double communication_ratio_ = 0;   // smoothed
  SteadyTime last_sign_{};
  bool first_of_round_ = true;
};

}  // namespace lockstep::train
