#pragma once
// A job's rendezvous as the reconciler sees it: a copy taken under the service's lock. Plain values.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/protocol/failure_cause.h"
#include "runtime/common/protocol/rank_control.h"

namespace lockstep::rendezvous {

// A member that had a place in a round and lost it by a failure or a preemption.
struct Departure {
  std::string pod;
  std::string pod_uid;
  int slot = 0;
  std::vector<int64_t> ranks;  // in the round that it lost
  protocol::FailureCause cause = protocol::FailureCause::kInfrastructure;
  std::string reason;  // for people
  std::optional<int> exit_code;
  std::string node;              // empty: unknown
  double detection_seconds = 0;  // from the last sign of life to the detection; 0: noticed at once
  std::string last_lines;        // of its stderr
  bool is_back = false;          // its slot has a place again

  friend bool operator==(const Departure&, const Departure&) = default;
};

// How a round was repaired, cheapest first. A round has the most expensive level that was needed.
enum class RecoveryLevel { kMembership, kRespawn, kReplacePod, kCheckpoint };
[[nodiscard]] constexpr auto WordsOf(RecoveryLevel) {
  return std::to_array<std::string_view>({"Membership", "Respawn", "ReplacePod", "Checkpoint"});
}

// One round that ended other than by completion. Becomes an event and an entry of status.restarts[].
struct RoundChange {
  int64_t round =
      0;  // the formation that ended: the round's number, or a later one if its members formed it again
  // no value: the job grew or shrank on request
  std::optional<protocol::FailureCause> cause = protocol::FailureCause::kInfrastructure;
  std::string reason;  // for people
  std::vector<Departure> departures;
  RecoveryLevel level = RecoveryLevel::kMembership;  // so far
  bool is_repaired = false;     // all places are taken again, or as many as will be: `level` is final
  double recovery_seconds = 0;  // from its end to the next completed step; 0: not yet
  bool members_measured =
      false;  // recovery_seconds is the longest that a member reported; false: measured by the host
  // The formation that made this step; 0: not yet. Breaks with the same one overlap: no step was made between.
  int64_t recovered_in = 0;
  int64_t lost_steps = 0;
  double unfinished_seconds = 0;  // from its last completed step to its end: lost work
  std::optional<WallTime> ended;  // when the host observed its end; no value: only members reported it

  friend bool operator==(const RoundChange&, const RoundChange&) = default;
};

// A rank that is slower than the others of the running round.
struct SlowRank {
  std::string pod;
  int rank = 0;
  double slowness = 1;  // its time divided by the median rank's, when it was found

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

// Steps of the running round, as rank 0 spent its time.
struct MeasuredSteps {
  int64_t steps = 0;    // 0: none yet
  int64_t samples = 0;  // of all ranks; 0: unknown
  double seconds = 0;
  double communication_seconds = 0;  // of them, waiting for other ranks
  double data_seconds = 0;           // of them, waiting for samples

  friend bool operator==(const MeasuredSteps&, const MeasuredSteps&) = default;
};

struct RendezvousView {
  int64_t round = 0;                         // newest assigned round; 0: none
  int world_size = 0;                        // ranks in the current round; 0: between rounds
  std::vector<std::string> members;          // pod names in the current round
  int waiting = 0;                           // members that ask for a place; standbys while a round runs
  std::vector<std::string> responsive_pods;  // uids of the pods of all members that are not silent
  // time since the service started; below heartbeatTimeoutSeconds a live member may not have sent a heartbeat
  // yet
  Seconds listening{};
  bool completed = false;         // a member reported the end of training
  protocol::Progress progress;    // newest of any member
  int64_t best_step = 0;          // highest step ever reported; above progress.step while steps are repeated
  WallTime last_progress_time{};  // when `progress.step` last rose; epoch: never
  WallTime step_time{};           // when that step was completed, as measured by the members; epoch: none was
  protocol::Saved checkpoint;     // newest stored checkpoint
  WallTime checkpoint_time{};
  std::optional<protocol::SaveFailed> save_failed;  // after the newest stored checkpoint, in this round
  std::vector<protocol::Saved> saves;               // newest 32, newest last
  protocol::Evaluated evaluation;                   // newest; step 0: none
  std::vector<protocol::CheckpointDamaged> damaged_checkpoints;  // newest few, newest first
  std::vector<RoundChange> changes;                              // newest 10, newest last
  std::vector<SlowRank> stragglers;                              // in the order of the ranks
  MeasuredSteps measured_steps;
  std::optional<StoreOutage> store_outage;
};

}  // namespace lockstep::rendezvous
