#pragma once
// The life of a rank: ready → assigned → connected → synchronised → training, again for every round, in one
// process, until the training is complete or the process is to stop. What happens between two rounds:
//
//   abort   A collective fails, or the supervisor reports that the round is over (abort). The rank aborts its
//           communicator at once and discards the gradients. Parameters and optimizer state are kept; at most
//           the step in flight is repeated.
//   yield   The supervisor reports that the round is over (yield). All ranks leave after the same step.
//   stop    The rank leaves after its step. The remaining peers have the state; if no peer remains, the rank
//           stores it first.
//
// With localsgd and async, read "window of steps" for "step" (local_sgd.h).
//
// One file although it is long: what follows one thing after another, in a round and after it, shares its
// members. Runs on the step thread. main ends the process when the supervisor's socket closes.

#include <memory>
#include <optional>
#include <string>

#include "runtime/checkpoint/checkpointer.h"
#include "runtime/comm/device_group.h"
#include "runtime/common/api/checkpoint_spec.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/data/training_samples.h"
#include "runtime/train/loop/round_control.h"
#include "runtime/train/records/profile.h"
#include "runtime/train/state/training_state.h"

namespace lockstep::train {

struct LoopInputs {
  const api::TrainingSpec& training;
  const api::CheckpointSpec& checkpoint;
  // Where rank 0 binds the round's store. Empty: all interfaces.
  std::string listen_address;
  std::string ledger_folder;
  std::string process_name;
  bool log_all_ranks = false;
  ProfileSettings profile;
  const data::TrainingSamples& samples;
  const data::Dataset& test;
  TrainingState& state;
  const comm::DeviceUse& device;                     // the device of the state
  checkpoint::Checkpointer* checkpointer = nullptr;  // absent: no checkpoints
  Seconds store_patience;         // how long an outage of the checkpoint store is waited out
  Milliseconds collective_limit;  // CollectiveLimit
  protocol::ControlLink& link;
  RoundControl& control;
  const Clock& clock;
};

// How the process ends. `reason` is for the user; empty unless `code` says failure.
struct LoopOutcome {
  protocol::ExitCode code = protocol::ExitCode::kCompleted;
  std::string reason;
  int64_t failed_step = -1;  // as in protocol::Failed
};

[[nodiscard]] LoopOutcome RunElasticLoop(const LoopInputs& inputs);

}  // namespace lockstep::train
