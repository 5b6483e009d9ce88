#pragma once
// What the reconciler may know of a job's rendezvous: a copy taken under the service's lock. Plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::rendezvous {

// A member that had a place in a round and lost it by a failure or a preemption.
struct Departure {
  std::string pod;
  std::string pod_uid;
  int slot = 0;
  std::vector<int64_t> ranks;  // in that round
  std::string cause;           // a FailureCause (api/training_job.h)
  std::string reason;          // for people
  std::optional<int> exit_code;
  std::string node;              // empty: not known
  double detection_seconds = 0;  // from the last sign of life to the notice; 0: seen at once
  std::string last_lines;        // of its stderr
  bool is_back = false;          // its slot has a place again

  friend bool operator==(const Departure&, const Departure&) = default;
};

// How the ladder of DESIGN, decision 4, mended a round: the dearest rung that was needed.
enum class Rung { kMembership, kRespawn, kReplacePod, kCheckpoint };

// One round that ended other than by completion: becomes an event and an entry of status.restarts[].
struct RoundChange {
  int64_t round =
      0;  // the formation that ended: the round's number, or a later one where its members formed it again
  std::string cause;   // a FailureCause, or "Scale" where the job grew or shrank as it was told
  std::string reason;  // for people
  std::vector<Departure> departures;
  Rung rung = Rung::kMembership;  // so far
  bool is_mended = false;         // the world is full again, or as full as it will be: the rung is final
  double recovery_seconds = 0;    // from its end to the next completed step; 0: not yet
  bool members_measured =
      false;  // recovery_seconds is the longest that a member reports, not the host's measurement
  int64_t lost_steps = 0;
  double unfinished_seconds = 0;  // from its last completed step to its end: made in vain
  std::optional<WallTime> ended;  // when the host observed its end; no value: only members reported it

  friend bool operator==(const RoundChange&, const RoundChange&) = default;
};

// A rank that is slower than the others of the running round.
struct SlowRank {
  std::string pod;
  int rank = 0;
  double slowness = 1;  // times the median rank's time, when it was found

  [[nodiscard]] std::string ToString() const;

  friend bool operator==(const SlowRank&, const SlowRank&) = default;
};

// A member waits for a store that does not answer.
struct StoreOutage {
  std::string pod;  // the one that has waited longest
  std::string waiting;
  std::string reason;
  WallTime since{};

  friend bool operator==(const StoreOutage&, const StoreOutage&) = default;
};

struct RendezvousView {
  int64_t round = 0;                 // newest round ever given out; 0: none
  int world_size = 0;                // ranks in the current round; 0: between rounds
  std::vector<std::string> members;  // pod names in the current round
  int waiting = 0;                   // members that want a place; standbys while a round runs
  std::vector<std::string> heard;    // uids of the pods of all members that are not silent
  Seconds listening{};     // for so long; before heartbeatTimeoutSeconds a member that lives may be unheard
  bool completed = false;  // a member reported the end of training
  protocol::Progress progress;    // newest of any member
  int64_t best_step = 0;          // highest that any progress told of; above progress.step: it is made again
  WallTime last_progress_time{};  // when `progress.step` last rose; epoch: never
  // Since the step of `progress` was made, measured by the members.
  double seconds_since_step = 0;
  protocol::Saved checkpoint;  // newest stored checkpoint
  WallTime checkpoint_time{};
  std::vector<protocol::Saved> saves;                            // newest 32, newest last
  protocol::Evaluated evaluation;                                // newest; step 0: none
  std::vector<protocol::CheckpointDamaged> damaged_checkpoints;  // newest few, newest first
  std::vector<RoundChange> changes;                              // newest 10, newest last
  std::vector<SlowRank> stragglers;                              // in the order of the ranks
  std::optional<StoreOutage> store_outage;
};

}  // namespace lockstep::rendezvous
