#pragma once
// The decisions of a supervisor about its ranks and its rendezvous, as a pure state machine: events in,
// actions out. No processes, sockets, threads or clocks here (supervisor.h has them). One thread.
//
//   start ─► ranks warm up ─► all Ready ─► join ─► assignment ─► ranks train, we watch the round
//              ▲                              round over: ranks leave it and send Ready again
//              │                              no answer: the members form the round again among themselves
//              └── a rank died: the pod leaves the round at once, restarts the rank and joins when it is Ready

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/common/protocol/rendezvous.h"
#include "runtime/launch/supervisor/hang_detector.h"

namespace lockstep::launch {

// ---- events
struct RankMessage {
  int local_rank = 0;
  protocol::FromRank message;
};
// The rank's process has ended, or the user's program that it ran.
struct RankExited {
  int local_rank = 0;
  int exit_code = 0;
  int signal = 0;              // the signal that killed it; 0: it exited
  bool out_of_memory = false;  // the kernel's out-of-memory killer was active
  std::string last_lines;      // of its stderr
};
struct JoinAnswered {
  Result<protocol::JoinAnswer> answer;
};
struct WatchAnswered {
  int64_t round = 0;
  Result<protocol::WatchAnswer> answer;
};
struct HeartbeatAnswered {
  int64_t round = 0;
  Result<protocol::WatchAnswer> answer;
};
// The answer of the supervisor that hosts the round's formations.
struct FormAnswered {
  Result<protocol::FormAnswer> answer;
};
struct FormationWatchAnswered {
  int64_t formation = 0;
  Result<protocol::WatchAnswer> answer;
};
// What NCCL knows of the ranks of the formation that wait for each other. Not sent where it knows nothing.
struct NcclAnswered {
  int64_t formation = 0;
  std::string text;
};
// The cloud takes the machine away.
struct DepartureFound {
  protocol::NodeDeparts departs;
};
struct Terminate {};  // SIGTERM or SIGINT
struct GraceOver {};  // the grace period is nearly used up
struct Tick {};       // several times a second
using Event =
    std::variant<RankMessage, RankExited, JoinAnswered, WatchAnswered, HeartbeatAnswered, FormAnswered,
                 FormationWatchAnswered, NcclAnswered, DepartureFound, Terminate, GraceOver, Tick>;

// NCCL has this time for an answer.
inline constexpr Milliseconds kNcclTime{2'000};

// ---- actions, executed in order
// Starts the rank's process, unless only the user's program in it has ended: then the process is Ready next.
struct SpawnRank {
  int local_rank = 0;
};
// The end of the process is ignored from now on.
struct DropRank {
  int local_rank = 0;
};
// The end of the process will be reported.
struct KillRank {
  int local_rank = 0;
};
struct ReportHang {
  int local_rank = 0;
  HangFinding finding;
};
// Writes the rank's stack (if it can) and the kernel's view of its threads to the log.
struct WriteStack {
  int local_rank = 0;
};
// Asks NCCL which ranks are missing or behind (nccl_ras.h).
struct AskNccl {
  int64_t formation = 0;
  int world = 0;
};
struct SendToRank {
  int local_rank = 0;
  protocol::ToRank message;
};
// Replaces any running long poll.
struct StartJoin {
  protocol::JoinRequest request;
  std::chrono::milliseconds delay{0};
};
struct StartWatch {
  protocol::WatchRequest request;
  std::chrono::milliseconds delay{0};
};
// Logs once that the job waits, but not for this pod.
struct ReportWaiting {
  std::string waits_for;
};
struct StopPolling {};
// The supervisor of the newest round's rank 0, where its members can form the round again.
struct FormationAddress {
  std::string host;
  int port = 0;  // 0: there is none
  std::string key;
};
// Hosts formations in this supervisor, if the round's rank 0 is here.
struct HostFormations {
  int64_t round = 0;  // 0: rank 0 is not here
  int world = 0;
};
// Replaces any running poll to the host of the formations.
struct StartForming {
  FormationAddress at;
  protocol::FormRequest request;
  std::chrono::milliseconds delay{0};
};
struct StartFormationWatch {
  FormationAddress at;
  protocol::FormationWatch request;
  std::chrono::milliseconds delay{0};
};
struct StopAskingMembers {};
struct ReportBroken {
  protocol::BrokenReport report;
};
struct ReportLeave {
  protocol::LeaveRequest request;
};
// Drops reports that the rendezvous has not accepted: they concern a formation that is over.
struct ForgetReports {};
struct BeatNow {};
struct StartGrace {
  double seconds = 0;
};
struct Exit {
  int code = 0;
  std::string reason;
  std::string last_lines;  // of the responsible rank, if there is one
};
using Action =
    std::variant<SpawnRank, DropRank, KillRank, ReportHang, WriteStack, AskNccl, SendToRank, StartJoin,
                 StartWatch, ReportWaiting, StopPolling, HostFormations, StartForming, StartFormationWatch,
                 StopAskingMembers, ReportBroken, ReportLeave, ForgetReports, BeatNow, StartGrace, Exit>;
using Actions = std::vector<Action>;

struct SupervisionSettings {
  protocol::WorkerConfig config;
  protocol::Member member;
  std::string address;
  // The ranks run a user's program, which reports no steps and has its own exit codes.
  bool is_program = false;
  bool divides_state = false;  // over the ranks, which hand their parts over before they stop
};

class Supervision {
 public:
  explicit Supervision(SupervisionSettings settings);

  [[nodiscard]] Actions Start(SteadyTime now);
  [[nodiscard]] Actions On(const Event& event, SteadyTime now);
  [[nodiscard]] protocol::Heartbeat CurrentHeartbeat() const;

 private:
  enum class RankState { kWarmingUp, kReady, kTraining, kExited };
  // A rank that is about to be killed or asked to end.
  struct Ending {
    protocol::ExitCode code =
        protocol::ExitCode::kHang;  // the reason; also the pod's exit code if the pod ends
    std::string why;
    protocol::HealthAction action = protocol::HealthAction::kRestart;
    SteadyTime at{};  // when its stack is written; then, of a program, when it must be dead
    double detection_seconds = 0;
    bool killed_program = false;
  };
  // The newest error of a rank itself, of any of its processes.
  struct OwnError {
    int64_t formation = 0;
    int64_t step = -1;
    std::string reason;
  };
  struct Rank {
    RankState state = RankState::kWarmingUp;
    protocol::Ready ready;
    protocol::Progress progress;
    protocol::Failed failure{.exit_code = 0};  // 0: it reported none
    protocol::StoreUnavailable store_unavailable;
    bool finished = false;
    std::optional<Ending> ending;
  };

  void Handle(const RankMessage& event, SteadyTime now);
  void Handle(const RankExited& event, SteadyTime now);
  void Handle(const JoinAnswered& event, SteadyTime now);
  void Handle(const WatchAnswered& event, SteadyTime now);
  void Handle(const HeartbeatAnswered& event, SteadyTime now);
  // Returns true if the answer ended the round or the pod.
  bool EndsIt(int64_t round, const Result<protocol::WatchAnswer>& answer, SteadyTime now);
  void Handle(const FormAnswered& event, SteadyTime now);
  void Handle(const FormationWatchAnswered& event, SteadyTime now);
  void Handle(const NcclAnswered& event, SteadyTime now);
  void Handle(const DepartureFound& event, SteadyTime now);
  void Handle(const Terminate& event, SteadyTime now);
  void Handle(const GraceOver& event, SteadyTime now);
  void Handle(const Tick& event, SteadyTime now);

  [[nodiscard]] bool AllFinished() const;
  void OnReady(Rank& rank, const protocol::Ready& ready, SteadyTime now);
  void OnProgress(Rank& rank, const protocol::Progress& progress, SteadyTime now);
  void OnBroken(int local_rank, const protocol::Broken& broken, SteadyTime now);
  // A rank had an error of its own in the round. Returns true if the pod ends because a retry cannot help.
  // `exit_code`: of the rank's process.
  bool OnOwnError(int64_t step, const std::string& reason, const std::string& last_lines, int exit_code);
  void OnAssigned(const protocol::JoinAnswer& answer, SteadyTime now);
  // Records that the formation is over, for a reason that the rendezvous may not learn otherwise.
  void RememberBreak(const std::string& reason, const protocol::RankFailure& failure, SteadyTime now);
  void OnFormedAgain(const protocol::FormAnswer& answer, SteadyTime now);
  // `place`: that of the first rank.
  void EnterFormation(const protocol::RankAssignment& place, SteadyTime now);
  // Whether the members can form the newest round again, while the rendezvous is away.
  [[nodiscard]] bool CanFormAgain() const;
  void AskMembersToForm(std::chrono::milliseconds delay);
  void WatchMembers(std::chrono::milliseconds delay);
  void LeaveMembersAlone();
  void HostAnswered(SteadyTime now);
  void LookForHang(int local_rank, SteadyTime now);
  void OnHang(int local_rank, const HangFinding& finding, SteadyTime now);
  void LookForMissing(SteadyTime now);
  [[nodiscard]] std::string ByNccl() const;
  [[nodiscard]] std::string ReasonOf(const Ending& ending) const;
  void RestartPolls();
  void OnSaveWanted(const std::string& request);
  void OnProfileWanted(const protocol::ProfileWanted& request);
  void OnDeparture(const protocol::NodeDeparts& departs);
  void OnStraggler(const protocol::Straggler& straggler, SteadyTime now);
  void EndRank(int local_rank, SteadyTime now);
  void JoinIfAllReady(SteadyTime now);
  // Whether a rank that is Ready needs another round before it stops.
  [[nodiscard]] bool HandsOver() const;
  void AnnounceStop();
  void ReportStopping(protocol::LeaveReason reason);
  void Rejoin(std::chrono::milliseconds delay);
  [[nodiscard]] bool CanStartFirst() const;
  void StartPrograms(SteadyTime now);
  void OnWaiting(const protocol::JoinAnswer& answer, SteadyTime now);
  [[nodiscard]] bool JoinTimedOut(SteadyTime now) const;
  static constexpr int kNoRank = -1;
  void EndRoundLocally(protocol::LeaveMode mode, int except_local_rank, SteadyTime now);
  void RespawnOrGiveUp(const RankExited& event, const protocol::RankFailure& failure, SteadyTime now);
  // Counts a failure. Returns true if there were too many without progress, so the pod ends.
  bool GivesUp(const std::string& what, const std::string& last_lines, int exit_code);
  [[nodiscard]] protocol::RankFailure FailureOf(const RankExited& event) const;
  void ExitWhenAllEnded();
  void ExitNow(int code, std::string reason, protocol::LeaveReason leave, std::string last_lines = "");
  [[nodiscard]] bool AllRanks(RankState state) const;
  [[nodiscard]] protocol::Progress OfRound(protocol::Progress progress) const;
  void Do(Action action) { actions_.push_back(std::move(action)); }

  SupervisionSettings settings_;
  std::vector<Rank> ranks_;
  std::vector<HangDetector> hang_detectors_;  // by local rank; kept when a rank's process restarts
  int64_t round_ = 0;                         // newest round that this pod was assigned to
  int64_t formation_ = 0;                     // of round_; the ranks know it as their round
  FormationAddress formations_;               // of round_
  std::vector<std::string> hosts_;            // addresses of the members of round_, if rank 0 is here
  bool in_round_ = false;
  int world_ = 0;
  int first_rank_ = 0;
  SteadyTime join_started_{};
  SteadyTime join_clock_{};  // rendezvous.joinTimeoutSeconds counts from here
  // According to the newest answer: a round runs without this pod, or other pods of the job have not started.
  // This pod is responsible for neither, so the join clock does not advance.
  bool waits_for_others_ = false;
  bool joining_ = false;
  int join_failures_ = 0;
  int watch_failures_ = 0;
  bool host_is_away_ = false;  // according to the newest heartbeat
  SteadyTime last_answer_{};   // time of the last answer of the rendezvous
  bool asks_members_ = false;  // to form the round, or, in it, whether it is over
  int member_failures_ = 0;
  std::optional<SteadyTime> asked_nccl_;
  NcclAnswered nccl_;         // the newest answer
  bool keeps_state_ = false;  // the ranks do, between rounds: they have reported Synced
  bool stopping_ = false;
  bool exiting_ = false;
  int failures_without_progress_ = 0;
  int64_t failed_formation_ = 0;  // the newest in which a failure was counted
  SteadyTime round_started_{};
  OwnError own_error_;
  int64_t best_step_ = 0;
  SteadyTime step_made_{};      // when a rank last reported a different step
  SteadyTime now_{};            // of the newest event
  SteadyTime last_progress_{};  // of any rank
  struct Break {
    protocol::Repair repair;
    SteadyTime at{};
    int64_t entered_next = 0;  // the first formation that this member was in after it
  };
  std::optional<Break> break_;  // until the next step
  std::vector<protocol::Repair> repairs_;
  // The newest request for a checkpoint that was sent to a rank, and its round: in another round it may be
  // lost.
  std::pair<std::string, int64_t> save_requested_;
  std::pair<std::string, int64_t> profile_requested_;   // the same for a profile
  std::pair<std::string, int64_t> departure_reported_;  // the same for the departure of the node
  std::optional<protocol::NodeDeparts> departure_;      // as the cloud says
  protocol::ProfileAgreed profile_;
  protocol::Saved checkpoint_;
  protocol::SaveFailed save_failed_;  // of this round
  protocol::Evaluated evaluation_;
  std::vector<protocol::CheckpointDamaged> damaged_checkpoints_;
  Actions actions_;  // of the event being handled
};

}  // namespace lockstep::launch
