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
  std::string phase;
  int64_t step = 0;
  // Since the process started, as of its newest Progress, which it sent in round work_round.
  int64_t work_round = 0;
  int64_t steps = 0;
  int64_t samples = 0;
  double compute_seconds = 0;
};

// How a rank died, as its supervisor observed it; becomes an entry of status.restarts[].
struct RankFailure {
  std::string cause = "Infrastructure";  // a FailureCause (api/training_job.h)
  std::vector<int64_t> ranks;            // in the broken round
  int exit_code = 0;                     // 128 + signal if a signal ended it
  double detection_seconds = 0;          // from the last sign of life to the decision; 0: noticed at once
  std::string last_lines;                // of its stderr
};

// A formation that broke and was followed by another one, as reported by a member. The host records it if it
// does not know it, because it was unavailable or has started since.
struct Repair {
  int64_t formation = 0;          // the one that broke
  std::string reason;             // for people
  RankFailure failure;            // of a rank of this member; without `ranks`: none of its ranks died
  double unfinished_seconds = 0;  // from the last completed step to the break; this work is lost
  double seconds = 0;  // from the break to the first step of the next formation; 0: this member was not in it
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

template <class V>
void Visit(FormRequest& m, V& v) {
  v("job", m.job);
  v("round", m.round, limits::kRound);
  v("formation", m.formation, limits::kRound);
  v("firstRank", m.first_rank, limits::kRank);
  v("nproc", m.nproc, limits::kRanksOfMember);
  v("storePort", m.store_port, limits::kPort);
  v("step", m.step, limits::kStep);
}
template <class V>
void Visit(FormAnswer& m, V& v) {
  v("formed", m.formed);
  v("formation", m.formation, limits::kRound);
  v("storePort", m.store_port, limits::kPortOrNone);
  v("newestStep", m.newest_step, limits::kStep);
}
template <class V>
void Visit(FormationWatch& m, V& v) {
  v("job", m.job);
  v("round", m.round, limits::kRound);
  v("formation", m.formation, limits::kRound);
}
template <class V>
void Visit(Member& m, V& v) {
  v("pod", m.pod, limits::kName);
  v("podUid", m.pod_uid, limits::kName);
  v("slot", m.slot, limits::kSlot);
  v("incarnation", m.incarnation, limits::kName);
}
template <class V>
void Visit(FinishedRound& m, V& v) {
  v("round", m.round, limits::kRound);
  v("world", m.world, limits::kWorld);
  v("firstRank", m.first_rank, limits::kRank);
}
template <class V>
void Visit(JoinRequest& m, V& v) {
  v("job", m.job);
  v("member", m.member);
  v("address", m.address, limits::kName);
  v("nproc", m.nproc, limits::kRanksOfMember);
  v("storePort", m.store_port, limits::kPort);
  v("step", m.step, limits::kStep);
  v("lastRound", m.last_round, limits::kRound);
  v("formPort", m.form_port, limits::kPortOrNone);
  v("formKey", m.form_key, limits::kName);
  v("canStartFirst", m.can_start_first);
  v("finished", m.finished);
}
template <class V>
void Visit(JoinAnswer& m, V& v) {
  v("state", m.state, limits::UpTo(JoinState::kCompleted));
  v("round", m.round, limits::kRound);
  v("world", m.world, limits::kWorld);
  v("firstRank", m.first_rank, limits::kRank);
  v("storeHost", m.store_host, limits::kName);
  v("storePort", m.store_port, limits::kPortOrNone);
  v("formPort", m.form_port, limits::kPortOrNone);
  v("formKey", m.form_key, limits::kName);
  v("newestStep", m.newest_step, limits::kStep);
  v("reason", m.reason, limits::kText);
  v("hosts", m.hosts, limits::kHosts);
  v("previousEnd", m.previous_end, limits::kText);
  v("standby", m.standby);
  v("waitsFor", m.waits_for, limits::kText);
  v("startFirst", m.start_first);
}
template <class V>
void Visit(WatchRequest& m, V& v) {
  v("job", m.job);
  v("member", m.member);
  v("round", m.round, limits::kRound);
}
template <class V>
void Visit(Straggler& m, V& v) {
  v("rank", m.rank, limits::kRank);
  v("slowness", m.slowness, limits::kCount);
}
template <class V>
void Visit(WatchAnswer& m, V& v) {
  v("over", m.over);
  v("mode", m.mode, limits::UpTo(LeaveMode::kAbort));
  v("reason", m.reason, limits::kText);
  v("stragglers", m.stragglers, limits::kOfEachRank);
  v("save", m.save, limits::kText);
  v("profile", m.profile);
  v("departure", m.departure, limits::kText);
}
template <class V>
void Visit(RankReport& m, V& v) {
  v("rank", m.rank, limits::kRank);
  v("phase", m.phase, limits::kWord);
  v("step", m.step, limits::kStep);
  v("workRound", m.work_round, limits::kRound);
  v("steps", m.steps, limits::kCount);
  v("samples", m.samples, limits::kCount);
  v("computeSeconds", m.compute_seconds, limits::kSeconds);
}
template <class V>
void Visit(RankFailure& m, V& v) {
  v("cause", m.cause, limits::kWord);
  v("ranks", m.ranks, limits::kRanks);
  v("exitCode", m.exit_code, limits::kExitCode);
  v("detectionSeconds", m.detection_seconds, limits::kSeconds);
  v("lastLines", m.last_lines, limits::kText);
}
template <class V>
void Visit(Repair& m, V& v) {
  v("formation", m.formation, limits::kRound);
  v("reason", m.reason, limits::kText);
  v("failure", m.failure);
  v("unfinishedSeconds", m.unfinished_seconds, limits::kSeconds);
  v("seconds", m.seconds, limits::kSeconds);
}
template <class V>
void Visit(Heartbeat& m, V& v) {
  v("job", m.job);
  v("member", m.member);
  v("round", m.round, limits::kRound);
  v("world", m.world, limits::kWorld);
  v("firstRank", m.first_rank, limits::kRank);
  v("nproc", m.nproc, limits::kRanksOfMember);
  v("ranks", m.ranks, limits::kOfEachRank);
  v("progress", m.progress);
  v("secondsSinceStep", m.seconds_since_step, limits::kSeconds);
  v("checkpoint", m.checkpoint);
  v("evaluation", m.evaluation);
  v("profile", m.profile);
  v("damagedCheckpoints", m.damaged_checkpoints, {.max_items = kKeptDamages});
  v("storeAway", m.store_unavailable);
  v("repairs", m.repairs, {.max_items = kKeptRepairs});
  v("keepsState", m.keeps_state);
}
template <class V>
void Visit(BrokenReport& m, V& v) {
  v("job", m.job);
  v("member", m.member);
  v("round", m.round, limits::kRound);
  v("reason", m.reason, limits::kText);
}
template <class V>
void Visit(LeaveRequest& m, V& v) {
  v("job", m.job);
  v("member", m.member);
  v("round", m.round, limits::kRound);
  v("reason", m.reason, limits::UpTo(LeaveReason::kHandingOver));
  v("detail", m.detail, limits::kText);
  v("failure", m.failure);
}

}  // namespace lockstep::protocol
