#pragma once
// The messages of the rendezvous: POST with JSON bodies under /v1/. A *member* is a pod with its supervisor;
// it brings `nproc` ranks. All messages are idempotent and contain the job's uid and the round. A message
// from an older round or a deleted pod is rejected with 410, and the sender must exit (ExitCode::kEvicted).
// Pure.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/protocol/damaged_checkpoints.h"
#include "runtime/common/protocol/failure_cause.h"
#include "runtime/common/protocol/message_limits.h"
#include "runtime/common/protocol/rank_control.h"
#include "runtime/common/protocol/worker_config.h"

namespace lockstep::protocol {

inline constexpr std::string_view kJoinPath = "/v1/join";            // long poll → JoinAnswer
inline constexpr std::string_view kWatchPath = "/v1/watch";          // long poll → WatchAnswer
inline constexpr std::string_view kHeartbeatPath = "/v1/heartbeat";  // → WatchAnswer, at once
inline constexpr std::string_view kBrokenPath = "/v1/broken";        // → {}
inline constexpr std::string_view kLeavePath = "/v1/leave";          // → {}
// Served by the supervisor of the round's rank 0 for the members of the round, while the service is
// unavailable:
inline constexpr std::string_view kFormPath = "/v1/form";                       // long poll → FormAnswer
inline constexpr std::string_view kFormationWatchPath = "/v1/watch-formation";  // long poll → WatchAnswer
// The status of an answer that redirects to the host of the job: host:port in the field kHostField.
inline constexpr int kMisdirected = 421;
inline constexpr const char* kHostField = "host";
// The server answers a long poll after this time at the latest; the client repeats it.
inline constexpr double kLongPollSeconds = 20;

struct Member {
  std::string pod;  // name of the pod
  std::string pod_uid;
  int slot = 0;
  std::string incarnation;  // random per supervisor process: a restarted container is another incarnation
};

// For a program of the user's own: the round in which all ranks of a pod completed, and their position in it.
struct FinishedRound {
  int64_t round = 0;  // 0: none
  int world = 0;
  int first_rank = 0;
};

struct JoinRequest {
  JobIdentity job;
  Member member;
  std::string address;  // by which peers reach this pod
  int nproc = 1;
  int store_port = 0;      // a port on which the first rank listens
  int64_t step = -1;       // highest step whose state a rank of this pod has; -1: none
  int64_t last_round = 0;  // newest formation of this member; distinguishes a lost answer from a broken round
  int form_port = 0;       // on which its supervisor serves kFormPath
  std::string form_key;    // bearer token for kFormPath
  // The user's program does not run in this pod, and can be started before the pod joins.
  bool can_start_first = false;
  // The member keeps its place in that round: the job is complete when all members are, and starts again if
  // one fails before.
  FinishedRound finished{};
};

enum class JoinState {
  kWaiting,  // no answer yet: repeat the request
  kAssigned,
  kCompleted,  // the job is complete: exit 0
};

// Contains only the store's address of the other members, through which the ranks find each other. With all
// members in each of them, the answers of a round of 10,000 members would be 10 GB.
struct JoinAnswer {
  JoinState state = JoinState::kWaiting;
  int64_t round = 0;
  int world = 0;       // ranks
  int first_rank = 0;  // of this member; it has first_rank … first_rank + nproc - 1
  std::string store_host;
  int store_port = 0;
  int form_port = 0;  // at store_host, as in the join of the first member
  std::string form_key;
  int64_t newest_step = -1;
  std::string reason;  // why the round has this composition
  // The addresses of all members in order of rank, for the member that has rank 0; empty also where the service does
  // not know them all.
  std::vector<std::string> hosts{};
  // how the previous round ended; empty: there was none, or the service started since
  std::string previous_end;
  bool standby = false;  // for kWaiting: a round runs without this member, which stays ready as a standby
  // For kWaiting: a text about the pods of the job that have not started; empty: all have, and the join clock
  // runs.
  std::string waits_for;
  // For kWaiting: the other members keep their state from round to round and would wait for the imports of this
  // member's program. It has not joined; it should start its program first.
  bool start_first = false;
};

struct WatchRequest {
  JobIdentity job;
  Member member;
  int64_t round = 0;
};

// A rank that computes longer than the others (healthPolicy.straggler).
struct Straggler {
  int rank = 0;
  double slowness = 1;  // its time divided by the median rank's
};

struct WatchAnswer {
  bool over = false;  // the round is no longer current: leave it and join again
  LeaveMode mode = LeaveMode::kAbort;
  std::string reason;
  // In the answer to a heartbeat:
  std::vector<Straggler> stragglers;  // among the member's ranks
  std::string save;                   // identifies a request for a checkpoint now; empty: none
  ProfileWanted profile;              // a request for a profile
  std::string departure{};  // why the member's node is about to be taken away; empty: it is not known to be
};

struct RankReport {
  int rank = 0;
  int64_t step = 0;
  // Since the process started, as of its newest Progress, which it sent in round work_round.
  int64_t work_round = 0;
  int64_t steps = 0;
  int64_t samples = 0;
  double compute_seconds = 0;
};

// How a rank died, as its supervisor observed it; becomes an entry of status.restarts[].
struct RankFailure {
  FailureCause cause = FailureCause::kInfrastructure;
  std::vector<int64_t> ranks;    // in the broken round
  int exit_code = 0;             // 128 + signal if a signal ended it
  double detection_seconds = 0;  // from the last sign of life to the decision; 0: noticed at once
  std::string last_lines;        // of its stderr
};

// A formation that broke and was followed by another one, as reported by a member. The host records it if it
// does not know it, because it was unavailable or has started since.
struct Repair {
  int64_t formation = 0;          // the one that broke
  std::string reason;             // for people
  RankFailure failure;            // of a rank of this member; without `ranks`: none of its ranks died
  double unfinished_seconds = 0;  // from the last completed step to the break; this work is lost
  double seconds = 0;  // from the break to the first step of the next formation; 0: this member was not in it
  int64_t recovered_in = 0;  // the formation that made the next step
};

constexpr std::size_t kKeptRepairs = 10;  // as many as in status.restarts

// Also contains what the operator shows in the job's status.
struct Heartbeat {
  JobIdentity job;
  Member member;
  int64_t round = 0;   // 0: not in a round
  int world = 0;       // ranks of that round
  int first_rank = 0;  // so that a restarted service can adopt the running round
  int nproc = 1;
  std::vector<RankReport> ranks;
  Progress progress;                                   // as reported by the pod's first rank
  double seconds_since_step = 0;                       // since a rank of the pod completed a step
  Saved checkpoint;                                    // newest known to the pod; empty uri: none
  Evaluated evaluation;                                // newest; step 0: none
  ProfileAgreed profile;                               // newest, if the pod has rank 0
  std::vector<CheckpointDamaged> damaged_checkpoints;  // known to the pod (damaged_checkpoints.h)
  SaveFailed save_failed;                              // newest of the round; empty reason: none
  StoreUnavailable store_unavailable;                  // from the pod's first waiting rank; empty: none waits
  std::vector<Repair> repairs;  // newest last; repeated, because the host may have been unavailable
  bool keeps_state = false;     // the pod's ranks do, from round to round
};

struct BrokenReport {
  JobIdentity job;
  Member member;
  int64_t round = 0;
  std::string reason;
};

enum class LeaveReason {
  kRankDied,   // the pod stays and will join again: the others need not wait for it
  kStopping,   // the pod is leaving
  kCompleted,  // the training is complete on this pod
  // The pod will leave when its ranks have handed their parts of the state over. The others wait for that, or
  // for its next join if the round ends before.
  kHandingOver,
};

struct LeaveRequest {
  JobIdentity job;
  Member member;
  int64_t round = 0;
  LeaveReason reason = LeaveReason::kStopping;
  std::string detail;
  RankFailure failure;  // for kRankDied
};

// *Forming a round again*: if the service does not answer, the members of a broken round build their process
// group again among themselves. The round keeps its number, its members and their ranks, so that it cannot
// contradict a decision of the service. Only the formation gets another, higher number.
struct FormRequest {
  JobIdentity job;
  int64_t round = 0;
  int64_t formation = 0;  // newest formation of this member; equals `round` if the service formed it
  int first_rank = 0;
  int nproc = 1;
  int store_port = 0;
  int64_t step = -1;
};

struct FormAnswer {
  bool formed = false;  // false: repeat the request
  int64_t formation = 0;
  int store_port = 0;
  int64_t newest_step = -1;
};

struct FormationWatch {
  JobIdentity job;
  int64_t round = 0;
  int64_t formation = 0;
};

template <typename A>
void Describe(A& fields, Of<A, FormRequest>& message) {
  fields.Field("job", message.job);
  fields.Field("round", message.round, limits::kRound);
  fields.Field("formation", message.formation, limits::kRound);
  fields.Field("firstRank", message.first_rank, limits::kRank);
  fields.Field("nproc", message.nproc, limits::kRanksOfMember);
  fields.Required("storePort", message.store_port, limits::kPort);
  fields.Field("step", message.step, limits::kStep);
}
template <typename A>
void Describe(A& fields, Of<A, FormAnswer>& message) {
  fields.Field("formed", message.formed);
  fields.Field("formation", message.formation, limits::kRound);
  fields.Field("storePort", message.store_port, limits::kPortOrNone);
  fields.Field("newestStep", message.newest_step, limits::kStep);
}
template <typename A>
void Describe(A& fields, Of<A, FormationWatch>& message) {
  fields.Field("job", message.job);
  fields.Field("round", message.round, limits::kRound);
  fields.Field("formation", message.formation, limits::kRound);
}
template <typename A>
void Describe(A& fields, Of<A, Member>& message) {
  fields.Field("pod", message.pod, limits::kName);
  fields.Field("podUid", message.pod_uid, limits::kName);
  fields.Field("slot", message.slot, limits::kSlot);
  fields.Field("incarnation", message.incarnation, limits::kName);
}
template <typename A>
void Describe(A& fields, Of<A, FinishedRound>& message) {
  fields.Field("round", message.round, limits::kRound);
  fields.Field("world", message.world, limits::kWorld);
  fields.Field("firstRank", message.first_rank, limits::kRank);
}
template <typename A>
void Describe(A& fields, Of<A, JoinRequest>& message) {
  fields.Field("job", message.job);
  fields.Field("member", message.member);
  fields.Field("address", message.address, limits::kName);
  fields.Field("nproc", message.nproc, limits::kRanksOfMember);
  fields.Required("storePort", message.store_port, limits::kPort);
  fields.Field("step", message.step, limits::kStep);
  fields.Field("lastRound", message.last_round, limits::kRound);
  fields.Field("formPort", message.form_port, limits::kPortOrNone);
  fields.Field("formKey", message.form_key, limits::kName);
  fields.Field("canStartFirst", message.can_start_first);
  fields.Field("finished", message.finished);
}
template <typename A>
void Describe(A& fields, Of<A, JoinAnswer>& message) {
  fields.Number("state", message.state, JoinState::kCompleted);
  fields.Field("round", message.round, limits::kRound);
  fields.Field("world", message.world, limits::kWorld);
  fields.Field("firstRank", message.first_rank, limits::kRank);
  fields.Field("storeHost", message.store_host, limits::kName);
  fields.Field("storePort", message.store_port, limits::kPortOrNone);
  fields.Field("formPort", message.form_port, limits::kPortOrNone);
  fields.Field("formKey", message.form_key, limits::kName);
  fields.Field("newestStep", message.newest_step, limits::kStep);
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("hosts", message.hosts, limits::kHosts);
  fields.Field("previousEnd", message.previous_end, limits::kText);
  fields.Field("standby", message.standby);
  fields.Field("waitsFor", message.waits_for, limits::kText);
  fields.Field("startFirst", message.start_first);
}
template <typename A>
void Describe(A& fields, Of<A, WatchRequest>& message) {
  fields.Field("job", message.job);
  fields.Field("member", message.member);
  fields.Field("round", message.round, limits::kRound);
}
template <typename A>
void Describe(A& fields, Of<A, Straggler>& message) {
  fields.Field("rank", message.rank, limits::kRank);
  fields.Field("slowness", message.slowness, limits::kCount);
}
template <typename A>
void Describe(A& fields, Of<A, WatchAnswer>& message) {
  fields.Field("over", message.over);
  fields.Number("mode", message.mode, LeaveMode::kAbort);
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("stragglers", message.stragglers, limits::kOfEachRank);
  fields.Field("save", message.save, limits::kText);
  fields.Field("profile", message.profile);
  fields.Field("departure", message.departure, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, RankReport>& message) {
  fields.Field("rank", message.rank, limits::kRank);
  fields.Field("step", message.step, limits::kStep);
  fields.Field("workRound", message.work_round, limits::kRound);
  fields.Field("steps", message.steps, limits::kCount);
  fields.Field("samples", message.samples, limits::kCount);
  fields.Field("computeSeconds", message.compute_seconds, limits::kSeconds);
}
template <typename A>
void Describe(A& fields, Of<A, RankFailure>& message) {
  fields.Field("cause", message.cause);
  fields.Field("ranks", message.ranks, limits::kRanks);
  fields.Field("exitCode", message.exit_code, limits::kExitCode);
  fields.Field("detectionSeconds", message.detection_seconds, limits::kSeconds);
  fields.Field("lastLines", message.last_lines, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, Repair>& message) {
  fields.Field("formation", message.formation, limits::kRound);
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("failure", message.failure);
  fields.Field("unfinishedSeconds", message.unfinished_seconds, limits::kSeconds);
  fields.Field("seconds", message.seconds, limits::kSeconds);
  fields.Field("recoveredIn", message.recovered_in, limits::kRound);
}
template <typename A>
void Describe(A& fields, Of<A, Heartbeat>& message) {
  fields.Field("job", message.job);
  fields.Field("member", message.member);
  fields.Field("round", message.round, limits::kRound);
  fields.Field("world", message.world, limits::kWorld);
  fields.Field("firstRank", message.first_rank, limits::kRank);
  fields.Field("nproc", message.nproc, limits::kRanksOfMember);
  fields.Field("ranks", message.ranks, limits::kOfEachRank);
  fields.Field("progress", message.progress);
  fields.Field("secondsSinceStep", message.seconds_since_step, limits::kSeconds);
  fields.Field("checkpoint", message.checkpoint);
  fields.Field("evaluation", message.evaluation);
  fields.Field("profile", message.profile);
  fields.Field("damagedCheckpoints", message.damaged_checkpoints, {.max_items = kKeptDamages});
  fields.Field("saveFailed", message.save_failed);
  fields.Field("storeAway", message.store_unavailable);
  fields.Field("repairs", message.repairs, {.max_items = kKeptRepairs});
  fields.Field("keepsState", message.keeps_state);
}
template <typename A>
void Describe(A& fields, Of<A, BrokenReport>& message) {
  fields.Field("job", message.job);
  fields.Field("member", message.member);
  fields.Field("round", message.round, limits::kRound);
  fields.Field("reason", message.reason, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, LeaveRequest>& message) {
  fields.Field("job", message.job);
  fields.Field("member", message.member);
  fields.Field("round", message.round, limits::kRound);
  fields.Number("reason", message.reason, LeaveReason::kHandingOver);
  fields.Field("detail", message.detail, limits::kText);
  fields.Field("failure", message.failure);
}

}  // namespace lockstep::protocol
