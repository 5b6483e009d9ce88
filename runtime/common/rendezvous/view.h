#pragma once
// What the reconciler may know of a job's rendezvous: a copy taken under the service's lock. Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::rendezvous {

// One round that ended other than by completion, newest last: becomes an event and an entry of
// status.restarts[].
struct RoundChange {
  int64_t round = 0;  // the round that ended
  std::string cause;  // Infrastructure, Preemption, Rendezvous, … (protocol/exit_codes.h), "Scale" for growth
  std::string reason;             // for people
  std::vector<std::string> pods;  // who left it
  double recovery_seconds = 0;    // from its end to the next round's first completed step; 0: not yet
  int64_t lost_steps = 0;
};

struct RendezvousView {
  int64_t round = 0;                 // newest round ever given out; 0: none
  int world_size = 0;                // ranks in the current round; 0: between rounds
  std::vector<std::string> members;  // pod names in the current round
  bool completed = false;            // a member reported the end of training
  protocol::Progress progress;       // newest of any member
  WallTime last_progress_time{};     // when `progress.step` last rose; epoch: never
  protocol::Saved checkpoint;        // newest stored checkpoint
  WallTime checkpoint_time{};
  protocol::Evaluated evaluation;    // newest; step 0: none
  std::vector<RoundChange> changes;  // newest 10
};

}  // namespace lockstep::rendezvous
