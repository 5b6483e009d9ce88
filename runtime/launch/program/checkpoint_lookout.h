#pragma once
// Looks for the newest checkpoint of a program (program_checkpoints.h) every few seconds, on a thread of its own: a file
// system that hangs delays nobody else, not even the end of this process. Owned by the rank that reports the checkpoints;
// its functions are for one thread.

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "runtime/common/base/clock.h"
#include "runtime/launch/program/program_checkpoints.h"

namespace lockstep::launch {

class CheckpointLookout {
 public:
  explicit CheckpointLookout(std::string folder);
  // Does not wait for a look that hangs.
  ~CheckpointLookout();
  CheckpointLookout(const CheckpointLookout&) = delete;
  CheckpointLookout& operator=(const CheckpointLookout&) = delete;

  // The newest checkpoint, if it is another one than at the last call.
  [[nodiscard]] std::optional<ProgramCheckpoint> TakeNew();
  // The program has started: a file that was changed a moment ago may still be being written.
  void ProgramStarted();
  // Looks once more, for at most `limit`.
  void ProgramEnded(Milliseconds limit);

 private:
  struct Shared;
  static void Run(const std::string& folder, Shared& shared, const std::stop_token& stop);

  std::shared_ptr<Shared> shared_;  // shared with a thread that may outlive this object
  std::jthread thread_;
  std::optional<ProgramCheckpoint> taken_;
};

}  // namespace lockstep::launch
