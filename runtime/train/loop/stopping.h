#pragma once
// Preserves the state when ranks are asked to stop: stores it within the grace period if
// spec.checkpoint.onTermination says so, and sends what a rank holds alone to the ranks that stay. Step
// thread.

#include <chrono>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/train/loop/progress.h"
#include "runtime/train/loop/round_control.h"
#include "runtime/train/saves/saves.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

struct StopContext {
  RoundControl& control;
  ProgressReporter& progress;
  Saves& saves;
  TrainingState& state;
};

class Stopping {
 public:
  using Group = std::shared_ptr<comm::Communicator>;
  explicit Stopping(const StopContext& context) : context_(context) {}

  // All ranks of a round stop after the same step: they store the state together, and try again while the
  // store is away and all ranks have time. Nobody owns the checkpoints afterwards.
  void Together(const Group& group);
  // This rank is asked to stop outside of a round, so it does not know whether a peer holds the state. It
  // saves alone, and tries again while the store is away and the grace period lasts.
  void Alone(const LastPlace& place);
  // For strategies that divide state over ranks. All ranks call this before some of them leave for good: what
  // those hold alone is sent to the others. A checkpoint is stored first: the ranks of a job that is stopped
  // are notified one after another, and a rank that is notified outside of a round could store only its part.
  // Returns whether this rank leaves: it, or another rank of its pod, has been asked to stop. kAborted,
  // kInternal: the round is broken.
  [[nodiscard]] Result<bool> HandOver(const Group& group, int first_rank_of_pod);
  // Whether this rank stops in the next round and not alone: it holds a part of the state that no other rank
  // may hold, and that was not stored when the last ranks left.
  [[nodiscard]] bool hands_over() const;
  // Waits for saves in progress, within the grace period.
  void Drain();

 private:
  struct Leaving {
    std::vector<bool> stays;          // by rank
    std::chrono::milliseconds grace;  // for a save, the shortest of the ranks that leave
  };
  void SaveWhileAllHaveTime(const Group& group);
  void SaveAlone(const LastPlace& place);
  [[nodiscard]] bool AllHaveTime(comm::Communicator& communicator) const;
  [[nodiscard]] std::chrono::milliseconds GraceForSave() const;
  // All ranks call this. The ranks of a pod are asked to stop together, but one may read that later: it takes
  // the request from the others.
  [[nodiscard]] Result<Leaving> AgreeWhoLeaves(comm::Communicator& communicator, int first_rank_of_pod);
  [[nodiscard]] Result<void> SaveBeforeRanksLeave(const Group& group, std::chrono::milliseconds limit);

  const StopContext context_;
  int64_t stored_step_ = -1;  // that HandOver has stored
};

}  // namespace lockstep::train
