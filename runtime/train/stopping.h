#pragma once
// What becomes of the state when ranks are asked to stop: it is stored, where spec.checkpoint.onTermination
// says so, within the grace period; and what a rank holds alone goes to those that stay. Step thread.

#include <chrono>
#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/train/progress.h"
#include "runtime/train/round_control.h"
#include "runtime/train/saves.h"
#include "runtime/train/training_state.h"

namespace lockstep::train {

struct StopContext {
  const RoundControl& control;
  ProgressReporter& progress;
  Saves& saves;
  TrainingState& state;
};

class Stopping {
 public:
  using Group = std::shared_ptr<comm::Communicator>;
  explicit Stopping(const StopContext& context) : context_(context) {}

  // All ranks of a round stop after the same step: together they store it, again where the store is away and
  // all have time.
  void Together(const Group& group);
  // Asked to stop outside of a round: whether any peer holds the state is not known. Again for
  // as long as the store is away and the grace period lasts.
  void Alone(const LastPlace& place);
  // On all ranks where state is divided over them, before some of them may leave for good: what they alone
  // hold goes to the others. It is stored before, as a job that is stopped tells one rank after the other,
  // and whoever hears of it outside of a round has only a part to store. `limit` bounds that on those that
  // stay. kAborted, kInternal: the round is broken.
  [[nodiscard]] Result<void> HandOver(const Group& group, bool leaves, std::chrono::milliseconds limit);
  // Waits for what is being stored, within the grace period.
  void Drain();

 private:
  void SaveAlone(const LastPlace& place);
  [[nodiscard]] bool AllHaveTime(comm::Communicator& communicator) const;
  [[nodiscard]] std::chrono::milliseconds GraceForSave() const;
  [[nodiscard]] Result<void> SaveBeforeRanksLeave(const Group& group, std::chrono::milliseconds limit);

  const StopContext context_;
};

}  // namespace lockstep::train
