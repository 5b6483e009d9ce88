#pragma once
// When and how this rank stores checkpoints and reads them back. Without a checkpoint section it does
// nothing. Step thread; the writing itself happens in the checkpointer's background.

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/comm/communicator.h"
#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/common/protocol/history.h"
#include "runtime/train/phase_clock.h"
#include "runtime/train/save_interval.h"
#include "runtime/train/store_patience.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

struct SaveContext {
  checkpoint::Checkpointer* checkpointer = nullptr;  // absent: no checkpoints
  const api::CheckpointSpec& spec;
  const Clock& clock;
  protocol::ControlLink& link;
  PhaseClock& phases;
  StorePatience& patience;
  const std::vector<protocol::HistoryRecord>& history;  // as it grows
  int64_t steps_per_epoch = 0;
};

// Of the newest round that this process was in.
struct LastPlace {
  int64_t round = 0;
  int rank = -1;
};

class Saves {
 public:
  explicit Saves(const SaveContext& context)
      : context_(context),
        interval_(static_cast<double>(context.spec.mean_time_between_failures_seconds)),
        last_start_(context.clock.Steady()) {}

  [[nodiscard]] bool enabled() const { return context_.checkpointer != nullptr; }
  // Whether ranks that all are to stop store the state first.
  [[nodiscard]] bool on_termination() const {
    return enabled() && context_.spec.on_termination == api::OnTermination::kSave;
  }
  // Whether the state after `step` steps should be stored. One rank is asked and tells the others.
  [[nodiscard]] bool IsDue(int64_t step) const;
  // On all ranks of the round at the same step. Training continues while it is written, and where a rank has no
  // memory for its copy: then no rank writes, and the next save is due as if this one had begun.
  [[nodiscard]] Result<void> Start(const std::shared_ptr<comm::Communicator>& communicator,
                                   TrainingState& state);
  // Tells the supervisor what became of earlier saves.
  void Report();

  // On all ranks of the round: returns when the checkpoint is complete. That the store does not answer, or that
  // a rank has no memory (Error::IsTransient), all ranks report together, at once; what else fails is tried
  // `attempts` times. kAborted: the round broke, or another rank could not store its part. Without a limit: as
  // long as the save makes progress.
  [[nodiscard]] Result<void> SaveTogether(const std::shared_ptr<comm::Communicator>& communicator,
                                          TrainingState& state,
                                          std::optional<std::chrono::milliseconds> limit, int attempts);
  // Lets what is being written come to its end, so that it was not in vain.
  void Drain(std::chrono::milliseconds limit);
  // By this rank alone, outside of a round. The history is rank 0's: another may be far behind it.
  [[nodiscard]] Result<void> SaveAlone(TrainingState& state, const LastPlace& last,
                                       std::chrono::milliseconds limit);

  // In each round, on every rank: rank 0 says from now on that the job runs.
  void HoldPlace(int rank);
  // The job ends, or this process leaves it and others go on.
  void GiveUpPlace();
  void LeavePlace();

  // On all ranks of the round: RestoreTogether, again for as long as the store is away. The job's own
  // checkpoints come first in any case: after the loss of all ranks they are what training goes on from. Rank
  // 0 first claims the place for checkpoints for this job (runtime/checkpoint/ownership.h).
  [[nodiscard]] Result<bool> Restore(comm::Communicator& communicator, TrainingState& state,
                                     const checkpoint::Ownership::Pause& pause);

 private:
  // The same verdict on all ranks: what kept one of them from copying its part (kThrottled: it may pass).
  [[nodiscard]] Result<std::optional<Error>> Begin(const std::shared_ptr<comm::Communicator>& communicator,
                                                   TrainingState& state);
  [[nodiscard]] Result<std::optional<Error>> CopyTogether(
      const std::shared_ptr<comm::Communicator>& communicator, TrainingState& state);
  [[nodiscard]] Result<void> WaitFor(const comm::Communicator* communicator,
                                     std::optional<std::chrono::milliseconds> limit);
  [[nodiscard]] std::optional<Error> TakeFailureOf(int64_t step);
  [[nodiscard]] std::vector<protocol::HistoryRecord> HistoryOf(int rank) const;
  void Learn(double stall_seconds, double store_seconds);
  [[nodiscard]] double EpochOf(int64_t step) const;

  SaveContext context_;
  SaveInterval interval_;  // where it is Auto
  SteadyTime last_start_;
  struct Started {
    bool is_reporter = false;  // rank 0 speaks for all
    double stall_seconds = 0;
  };
  std::map<int64_t, Started> started_;
  std::map<int64_t, Error> failed_;
};

}  // namespace lockstep::train
