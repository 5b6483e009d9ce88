#pragma once
// The messages between the supervisor (`lockstep worker`) and one rank process over a local stream socket:
// one JSON object per line. The rank's end is the descriptor in LOCKSTEP_CONTROL_FD. When either end closes
// it, the other process must end: a rank never outlives its supervisor.
//
//   rank ──► supervisor   Ready (step of its state, port): the supervisor joins the rendezvous
//   supervisor ──► rank   RankAssignment: the rank builds its process group
//   rank ──► supervisor   Progress, Evaluated, Saved …: the supervisor uses them for heartbeats and /metrics
//   supervisor ──► rank   RoundOver (yield or abort): the rank leaves the round and sends Ready again
//   supervisor ──► rank   Stop: the rank saves if possible, then sends Finished or only exits
//
// Plain values; framing and parsing are pure. Any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/message_limits.h"
#include "runtime/common/protocol/rank_phase.h"
#include "runtime/common/protocol/step_times.h"
#include "runtime/common/protocol/train_phase.h"

namespace lockstep::protocol {

// ---- rank to supervisor

// The rank asks for a place in the next round. `step`: that of its state; -1: it has no state yet.
struct Ready {
  int64_t step = -1;
  // A port that this rank already listens on, for the round's TCPStore if it becomes rank 0.
  int store_port = 0;
  double flops_per_sample = 0;  // operations for training the model; 0: unknown
  // Only this rank may hold a part of the state. If it is asked to stop, it needs a round to hand that over.
  bool hands_over = false;
  // The user's program does not run, and can be started before the round (StartFirst).
  bool can_start_first = false;
};

// Cumulative since the process started, so that a dropped message loses nothing. Sent at most every 100 ms.
struct Progress {
  int64_t round = 0;
  int64_t step = 0;             // completed optimizer steps
  int64_t steps_under_way = 0;  // completed since then in a window of several steps; counted at its end
  int64_t total_steps = 0;
  double epoch = 0;  // with fraction
  double loss = 0;   // mean over the global batch of the last step; with a window over all of its steps
  double learning_rate = 0;
  double gradient_norm = 0;
  double samples_per_second = 0;      // of the whole world, smoothed
  int64_t steps_total = 0;            // committed by this process
  int64_t samples_total = 0;          // consumed by this rank
  int64_t global_samples_total = 0;   // consumed by all ranks in these steps; 0: unknown
  int64_t repeated_steps_total = 0;   // aborted and repeated
  int64_t skipped_steps_total = 0;    // committed without an update, because loss or gradient were not finite
  int64_t corrupt_records_total = 0;  // of this rank's samples, in training and in complete evaluations
  PhaseSeconds phase_seconds;

  // A program has started, and has taken no step.
  [[nodiscard]] bool IsStart() const { return step == 0 && steps_under_way == 0 && steps_total == 0; }
  // Of a program that a witness observes, the number of the step is known and nothing else about it.
  [[nodiscard]] bool HasOnlySteps() const { return total_steps == 0; }
  // A framework may report the number of its steps before the first loss.
  [[nodiscard]] bool HasLoss() const { return loss != 0 || samples_total > 0; }
};

// Sent with Progress, for the supervisor only; cumulative likewise.
struct Usage {
  StepTimes step_times;      // of committed steps
  int64_t tokens_total = 0;  // consumed by this rank; 0 if samples are not text
  // size of the tensors that this rank passed to collectives and messages
  int64_t communication_bytes_total = 0;
};

struct PhaseChanged {
  RankPhase phase = RankPhase::kProgram;  // also where the word is not known
};

// The round is no longer usable: a collective or this rank failed.
struct Broken {
  int64_t round = 0;
  std::string reason;
  int64_t failed_step = -1;  // the step in which this rank itself failed; -1: it did not
};

// This rank has entered the round: the process group is built and the state is equal on all ranks.
struct Synced {
  int64_t round = 0;
  int64_t step = 0;
  std::string source;  // source of this rank's state: "kept", "peer", "copy", "checkpoint" or "fresh"
  double seconds = 0;
};

// Travels as it is to the job's status (status.progress.evaluation): a field of it needs its line in Describe,
// the rank that sets it, and the definition of the resource (crds/schema.yaml).
struct Evaluated {
  int64_t step = 0;
  double epoch = 0;
  std::optional<double> loss{};  // no value: not finite
  std::optional<double> accuracy{};
  friend bool operator==(const Evaluated&, const Evaluated&) = default;
};

struct Saved {
  int64_t step = 0;  // -1: a program's checkpoint whose step is not known
  std::string uri;
  double seconds = 0;        // from snapshot to manifest; 0: not known
  double stall_seconds = 0;  // for which training waited
  int64_t bytes = 0;
  double completed_at = 0;  // of a program's checkpoint: Unix time; 0: a moment before the message
};

// From rank 0: all ranks have agreed to record these steps.
struct ProfileAgreed {
  std::string request;  // as in ProfileWanted; empty: none
  int64_t first = 0;
  int64_t last = 0;
  friend bool operator==(const ProfileAgreed&, const ProfileAgreed&) = default;
};

// This rank could not copy or store its part of a checkpoint, so there is none of this step.
struct SaveFailed {
  int64_t step = 0;
  std::string reason;
  friend bool operator==(const SaveFailed&, const SaveFailed&) = default;
};

// The store of checkpoints or of data does not answer. Sent when the outage begins, when another operation
// starts to wait for the store, and, with an empty `waiting`, when the store answers again. Its name on the
// wire is storeAway.
struct StoreUnavailable {
  std::string waiting;  // for people: the operation that waits
  std::string reason;   // the message of the store's error
  friend bool operator==(const StoreUnavailable&, const StoreUnavailable&) = default;
};

// From rank 0, which skipped this checkpoint when it looked for one to resume from.
struct CheckpointDamaged {
  int64_t step = 0;
  std::string reason;  // names the object and the problem
  friend bool operator==(const CheckpointDamaged&, const CheckpointDamaged&) = default;
};

// The training is complete and everything is stored; the process exits with 0 next.
struct Finished {
  int64_t step = 0;
};

// `reason` names the field or file and the correction.
struct Failed {
  int exit_code = 1;
  std::string reason;
  int64_t failed_step = -1;  // as in Broken
  // Only the user's program has ended, with `exit_code`: the process is Ready next. Otherwise it exits with `exit_code`.
  bool rank_continues = false;
};

// The answer to Ping, sent at once, whatever the training thread does.
struct Pong {
  bool waits_for_peers = false;  // in a collective to which this rank has contributed
  // What a program does is not known in full, and may take as long as its first step.
  bool may_take_long = false;
};

using FromRank =
    std::variant<Ready, Progress, Usage, PhaseChanged, Broken, Synced, Evaluated, Saved, ProfileAgreed,
                 SaveFailed, StoreUnavailable, CheckpointDamaged, Finished, Failed, Pong>;

// ---- supervisor to rank

struct RankAssignment {
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  int local_rank = 0;
  std::string address;       // of this pod, for binding the process group
  std::string store_host;    // the round's TCPStore: rank 0's pod …
  int store_port = 0;        // … and the port that rank 0 announced in Ready
  int64_t newest_step = -1;  // highest step whose state a rank of the round has; -1: none has state
  std::string previous_end;  // as in JoinAnswer
  // of all members in order of rank, for rank 0 of a program; empty: not known
  std::vector<std::string> hosts{};
};

enum class LeaveMode {
  kYield,  // finish the step in flight, then leave: all ranks agree on the step
  kAbort,  // a peer is gone: abort the group at once
};

struct RoundOver {
  int64_t round = 0;
  LeaveMode mode = LeaveMode::kAbort;
};

struct Stop {
  double grace_seconds = 30;
};

// Sent after a long time without progress; the rank answers with Pong.
struct Ping {};

// To rank 0: store a checkpoint after the next step.
struct Save {};

// To rank 0: let all ranks record their next steps.
struct ProfileWanted {
  std::string request;  // identifies the request; empty: none
  int steps = 0;
};

// The node of the pod is about to be taken away; Stop follows.
struct NodeDeparts {
  std::string reason;   // for people
  double deadline = 0;  // Unix time at which the node goes; 0: not known
};

// To the rank of a program that hangs or is a straggler: kill it and send Failed. The rank itself continues.
struct KillProgram {};

// To the rank of a program: start it without a round. It is Ready again when the program has joined.
struct StartFirst {
  int local_rank = 0;
};

using ToRank = std::variant<RankAssignment, RoundOver, Stop, Ping, Save, ProfileWanted, NodeDeparts,
                            KillProgram, StartFirst>;

// One line without its newline. Encode never fails; Decode rejects unknown types and invalid fields.
[[nodiscard]] std::string Encode(const FromRank& message);
[[nodiscard]] std::string Encode(const ToRank& message);
[[nodiscard]] Result<FromRank> DecodeFromRank(const std::string& line);
[[nodiscard]] Result<ToRank> DecodeToRank(const std::string& line);

template <typename A>
void Describe(A& fields, Of<A, Ready>& message) {
  fields.Field("step", message.step, limits::kStep);
  fields.Field("storePort", message.store_port, limits::kPortOrNone);
  fields.Field("flopsPerSample", message.flops_per_sample);
  fields.Field("handsOver", message.hands_over);
  fields.Field("canStartFirst", message.can_start_first);
}
template <typename A>
void Describe(A& fields, Of<A, Progress>& message) {
  fields.Field("round", message.round, limits::kRound);
  fields.Field("step", message.step, limits::kStep);
  fields.Field("stepsUnderWay", message.steps_under_way, limits::kCount);
  fields.Field("totalSteps", message.total_steps, limits::kCount);
  fields.Field("epoch", message.epoch);
  fields.Field("loss", message.loss);
  fields.Field("learningRate", message.learning_rate);
  fields.Field("gradientNorm", message.gradient_norm);
  fields.Field("samplesPerSecond", message.samples_per_second);
  fields.Field("stepsTotal", message.steps_total, limits::kCount);
  fields.Field("samplesTotal", message.samples_total, limits::kCount);
  fields.Field("globalSamplesTotal", message.global_samples_total, limits::kCount);
  fields.Field("repeatedStepsTotal", message.repeated_steps_total, limits::kCount);
  fields.Field("skippedStepsTotal", message.skipped_steps_total, limits::kCount);
  fields.Field("corruptRecordsTotal", message.corrupt_records_total, limits::kCount);
  fields.Field("phaseSeconds", message.phase_seconds, limits::kPhaseSeconds);
}
template <typename A>
void Describe(A& fields, Of<A, Usage>& message) {
  fields.Field("stepTimes", message.step_times);
  fields.Field("tokensTotal", message.tokens_total, limits::kCount);
  fields.Field("communicationBytesTotal", message.communication_bytes_total, limits::kBytes);
}
template <typename A>
void Describe(A& fields, Of<A, PhaseChanged>& message) {
  fields.Field("phase", message.phase);
}
template <typename A>
void Describe(A& fields, Of<A, Broken>& message) {
  fields.Field("round", message.round, limits::kRound);
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("failedStep", message.failed_step, limits::kStep);
}
template <typename A>
void Describe(A& fields, Of<A, Synced>& message) {
  fields.Field("round", message.round, limits::kRound);
  fields.Field("step", message.step, limits::kStep);
  fields.Field("source", message.source, limits::kWord);
  fields.Field("seconds", message.seconds, limits::kSeconds);
}
template <typename A>
void Describe(A& fields, Of<A, Evaluated>& message) {
  fields.Field("step", message.step, limits::kCount);
  fields.Field("epoch", message.epoch);
  fields.Field("loss", message.loss);
  fields.Field("accuracy", message.accuracy);
}
template <typename A>
void Describe(A& fields, Of<A, Saved>& message) {
  fields.Field("step", message.step, limits::kStep);
  fields.Field("uri", message.uri, limits::kText);
  fields.Field("seconds", message.seconds, limits::kSeconds);
  fields.Field("stallSeconds", message.stall_seconds, limits::kSeconds);
  fields.Field("bytes", message.bytes, limits::kBytes);
  fields.Field("completedAt", message.completed_at, limits::kUnixSeconds);
}
template <typename A>
void Describe(A& fields, Of<A, ProfileAgreed>& message) {
  fields.Field("request", message.request, limits::kText);
  fields.Field("first", message.first, limits::kStep);
  fields.Field("last", message.last, limits::kStep);
}
template <typename A>
void Describe(A& fields, Of<A, SaveFailed>& message) {
  fields.Field("step", message.step, limits::kStep);
  fields.Field("reason", message.reason, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, StoreUnavailable>& message) {
  fields.Field("waiting", message.waiting, limits::kText);
  fields.Field("reason", message.reason, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, CheckpointDamaged>& message) {
  fields.Field("step", message.step, limits::kStep);
  fields.Field("reason", message.reason, limits::kText);
}
template <typename A>
void Describe(A& fields, Of<A, Finished>& message) {
  fields.Field("step", message.step, limits::kStep);
}
template <typename A>
void Describe(A& fields, Of<A, Failed>& message) {
  fields.Field("exitCode", message.exit_code, limits::kExitCode);
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("failedStep", message.failed_step, limits::kStep);
  fields.Field("rankContinues", message.rank_continues);
}
template <typename A>
void Describe(A& fields, Of<A, Pong>& message) {
  fields.Field("waitsForPeers", message.waits_for_peers);
  fields.Field("mayTakeLong", message.may_take_long);
}
template <typename A>
void Describe(A& fields, Of<A, RankAssignment>& message) {
  fields.Field("round", message.round);
  fields.Field("rank", message.rank);
  fields.Field("world", message.world);
  fields.Field("localRank", message.local_rank);
  fields.Field("address", message.address);
  fields.Field("storeHost", message.store_host);
  fields.Field("storePort", message.store_port);
  fields.Field("newestStep", message.newest_step);
  fields.Field("previousEnd", message.previous_end);
  fields.Field("hosts", message.hosts);
}
template <typename A>
void Describe(A& fields, Of<A, RoundOver>& message) {
  fields.Field("round", message.round);
  fields.Number("mode", message.mode, LeaveMode::kAbort);
}
template <typename A>
void Describe(A& fields, Of<A, Stop>& message) {
  fields.Field("graceSeconds", message.grace_seconds);
}
template <typename A>
void Describe(A&, Of<A, Ping>&) {}
template <typename A>
void Describe(A&, Of<A, Save>&) {}
template <typename A>
void Describe(A& fields, Of<A, ProfileWanted>& message) {
  fields.Field("request", message.request, limits::kText);
  fields.Field("steps", message.steps, limits::kCount);
}
template <typename A>
void Describe(A& fields, Of<A, NodeDeparts>& message) {
  fields.Field("reason", message.reason, limits::kText);
  fields.Field("deadline", message.deadline);
}
template <typename A>
void Describe(A&, Of<A, KillProgram>&) {}
template <typename A>
void Describe(A& fields, Of<A, StartFirst>& message) {
  fields.Field("localRank", message.local_rank);
}

}  // namespace lockstep::protocol
