#pragma once
// Decides when this rank stores checkpoints, starts the saves and restores the state. Does nothing without a
// checkpoint section. Step thread; the checkpointer writes in the background.

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
#include "runtime/train/saves/save_interval.h"
#include "runtime/train/saves/store_patience.h"
#include "runtime/train/state/training_state.h"
#include "runtime/train/step/phase_clock.h"

namespace lockstep::train {

struct SaveContext {
  checkpoint::Checkpointer* checkpointer = nullptr;  // absent: no checkpoints
  const api::CheckpointSpec& spec;
  const Clock& clock;
  protocol::ControlLink& link;
  PhaseClock& phases;
  StorePatience& patience;
  const std::vector<protocol::HistoryRecord>& history;  // grows during training
  int64_t steps_per_epoch = 0;
};

// The rank's position in the newest round that this process joined.
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
  // Whether ranks store the state first when all of them are asked to stop.
  [[nodiscard]] bool on_termination() const {
    return enabled() && context_.spec.on_termination == api::OnTermination::kSave;
  }
  // Whether the state after `step` steps should be stored. Only one rank evaluates this, and its request
  // travels with the step's sums.
  [[nodiscard]] bool IsDue(int64_t step) const;
  // Starts a save. All ranks of the round call this at the same step. Training continues while it is written.
  // If a rank has no memory for its copy, no rank writes, and the next save is due as if this one had begun.
  [[nodiscard]] Result<void> Start(const std::shared_ptr<comm::Communicator>& communicator,
                                   TrainingState& state);
  // Reports the outcome of earlier saves to the supervisor.
  void Report();

  // All ranks of the round call this; it returns when the checkpoint is complete. If the store does not
  // answer or a rank has no memory (Error::IsTransient), all ranks return that error together, at once; after
  // any other failure the save is tried `attempts` times in total. kAborted: the round broke, or another rank
  // could not store its part. Without `limit` it waits as long as the save makes progress.
  [[nodiscard]] Result<void> SaveTogether(const std::shared_ptr<comm::Communicator>& communicator,
                                          TrainingState& state,
                                          std::optional<std::chrono::milliseconds> limit, int attempts);
  // Waits for a save that is being written, so that it is not lost.
  void Drain(std::chrono::milliseconds limit);
  // Saves by this rank alone, outside of a round. Only rank 0 stores the history, because that of another
  // rank may be incomplete.
  [[nodiscard]] Result<void> SaveAlone(TrainingState& state, const LastPlace& last,
                                       std::chrono::milliseconds limit);

  // Called in each round on every rank: from then on rank 0 renews the marker that the job is running.
  void HoldOwnership(int rank);
  // EndOwnership: the job ends. ReleaseOwnership: this process leaves, and others continue.
  void EndOwnership();
  void ReleaseOwnership();

  // All ranks of the round call this. Calls RestoreTogether, again while the store is away. The job's own
  // checkpoints always come first: after the loss of all ranks, training continues from them. Rank 0 first
  // claims the location for this job (runtime/checkpoint/ownership.h).
  [[nodiscard]] Result<bool> Restore(comm::Communicator& communicator, TrainingState& state,
                                     const checkpoint::Ownership::Pause& pause);

 private:
  // Returns the same verdict on all ranks: the reason why a rank could not copy its part (kThrottled: it may
  // be temporary).
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
  SaveInterval interval_;  // used if it is Auto
  SteadyTime last_start_;
  struct Started {
    bool is_reporter = false;  // rank 0 reports for all
    double stall_seconds = 0;
  };
  std::map<int64_t, Started> started_;
  std::map<int64_t, Error> failed_;
};

}  // namespace lockstep::train
