#include "runtime/launch/program_life.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/hang_detector.h"

namespace lockstep::launch {
namespace {

// The time for a command to clean up after the end of its round. The other ranks wait for it.
constexpr Milliseconds kLeaveTime{10'000};
// The time for the kernel to end it after SIGKILL. The kernel cannot end a process that is blocked in a
// driver or a file system.
constexpr Milliseconds kDeathTime{10'000};
// Seconds of the pod's grace period that are reserved, so that the end of the command is still observed.
constexpr double kWayOutSeconds = 1;
constexpr std::size_t kMaxCommand = 100;

// Whether the program hangs is not judged: before its first step nothing is known of it, and one that was asked to end is
// killed in time by this process.
ProgramAction NotJudged() { return Say{protocol::PhaseChanged{std::string(kProgramPhase)}}; }

Notice NoticeOf(const protocol::NodeDeparts& departs) {
  Notice notice{.reason = NoticeReason::kNodeDeparts, .detail = departs.reason};
  if (departs.deadline > 0)
    notice.until = WallTime(std::chrono::duration_cast<WallTime::duration>(Seconds(departs.deadline)));
  return notice;
}

}  // namespace

ProgramActions ProgramLife::Start() const { return {Announce{}}; }

ProgramActions ProgramLife::On(const protocol::ToRank& message, SteadyTime now) {
  ProgramActions actions;
  if (const auto* assignment = std::get_if<protocol::RankAssignment>(&message)) {
    state_ = State::kRunning;
    round_ = assignment->round;
    // The beginning of a round is the only progress of a program that no witness observes.
    actions = {StartProgram{*assignment}, NotJudged(), Say{protocol::Progress{.round = round_}}};
  } else if (const auto* over = std::get_if<protocol::RoundOver>(&message)) {
    if (state_ != State::kRunning || over->round != round_) return actions;
    state_ = State::kLeaving;
    deadline_ = now + kLeaveTime;
    actions = {NotJudged(), GiveNotice{{NoticeReason::kRoundOver, kLeaveTime}}, SignalProgram{SIGTERM}};
  } else if (const auto* stop = std::get_if<protocol::Stop>(&message)) {
    Stop(*stop, now, actions);
  } else if (const auto* departs = std::get_if<protocol::NodeDeparts>(&message)) {
    if (state_ == State::kRunning) actions = {GiveNotice{NoticeOf(*departs)}};
  } else if (std::holds_alternative<protocol::KillProgram>(message)) {
    if (state_ != State::kIdle) actions = {SignalProgram{SIGKILL}};
  } else if (std::holds_alternative<protocol::Ping>(message)) {
    if (state_ != State::kRunning) return {Say{protocol::Pong{}}};
    actions = {AnswerForProgram{}};
  }
  return actions;
}

void ProgramLife::Stop(const protocol::Stop& stop, SteadyTime now, ProgramActions& actions) {
  if (state_ == State::kIdle) {
    actions = {EndRank{static_cast<int>(protocol::ExitCode::kPreempted)}};
    return;
  }
  const Seconds left(std::max(0.0, stop.grace_seconds - kWayOutSeconds));
  actions = {NotJudged(), GiveNotice{{NoticeReason::kTermination, left}}};
  if (state_ == State::kRunning) actions.emplace_back(SignalProgram{SIGTERM});
  state_ = State::kStopping;
  deadline_ = now + std::chrono::duration_cast<SteadyTime::duration>(left);
}

ProgramActions ProgramLife::On(const ProgramEnd& end) {
  const State before = state_;
  state_ = State::kIdle;
  deadline_.reset();
  is_killed_ = false;
  switch (before) {
    case State::kIdle: return {};
    case State::kLeaving: return {Announce{}};
    // Also with exit code 0: a program that cleans up after SIGTERM has not finished its work.
    case State::kStopping: return {EndRank{static_cast<int>(protocol::ExitCode::kPreempted)}};
    case State::kRunning: break;
  }
  if (end.exit_code == 0 && end.signal == 0) return {Say{protocol::Finished{}}, Announce{}};
  return {Say{protocol::Failed{.exit_code = end.exit_code, .reason = Describe(end), .rank_continues = true}},
          Announce{}};
}

ProgramActions ProgramLife::Tick(SteadyTime now) {
  if (!deadline_.has_value() || now < *deadline_) return {};
  if (!std::exchange(is_killed_, true)) {
    deadline_ = now + kDeathTime;
    return {SignalProgram{SIGKILL}};
  }
  deadline_.reset();
  if (state_ == State::kStopping) return {EndRank{static_cast<int>(protocol::ExitCode::kPreempted)}};
  const int code = static_cast<int>(protocol::ExitCode::kInfrastructure);
  const std::string reason = Truncate(command_, kMaxCommand) + " is still there " +
                             FormatNumber(Seconds(kDeathTime).count()) + " s after SIGKILL";
  return {Say{protocol::Failed{.exit_code = code, .reason = reason}}, EndRank{code}};
}

std::string ProgramLife::Describe(const ProgramEnd& end) const {
  if (!end.error.empty()) return end.error;
  const std::string command = Truncate(command_, kMaxCommand);
  if (end.signal == 0) return command + " exited with code " + std::to_string(end.exit_code);
  const char* const name = sigabbrev_np(end.signal);
  return command + " was ended by signal " + std::to_string(end.signal) +
         (name == nullptr ? "" : std::string(" (SIG") + name + ")");
}

std::vector<std::string> ProgramEnvironment(const protocol::RankAssignment& assignment,
                                            const protocol::WorkerConfig& config, int omp_num_threads) {
  std::vector<std::string> environment;
  const auto set = [&](const char* name, const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      environment.push_back(std::string(name) + "=" + std::to_string(value));
    } else {
      environment.push_back(std::string(name) + "=" + value);
    }
  };
  const int nproc = std::max(1, config.nproc);  // equal in all pods of a job
  set("MASTER_ADDR", assignment.store_host);
  set("MASTER_PORT", assignment.store_port);
  set("RANK", assignment.rank);
  set("WORLD_SIZE", assignment.world);
  set("LOCAL_RANK", assignment.local_rank);
  set("LOCAL_WORLD_SIZE", nproc);
  set("GROUP_RANK", assignment.rank / nproc);
  set("GROUP_WORLD_SIZE", assignment.world / nproc);
  set("NODE_RANK", assignment.rank / nproc);
  set("ROLE_NAME", "default");
  set("ROLE_RANK", assignment.rank);
  set("ROLE_WORLD_SIZE", assignment.world);
  set("TORCHELASTIC_RUN_ID", config.job.uid);
  set("TORCHELASTIC_RESTART_COUNT", assignment.round - 1);
  set("TORCHELASTIC_MAX_RESTARTS", config.in_place_limit);
  // Makes rank 0 create its own store on MASTER_PORT: in a store that outlives the round, ranks would read
  // the addresses of dead ranks.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  set("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1");
  set("LOCKSTEP_ROUND", assignment.round);
  if (omp_num_threads > 0) set("OMP_NUM_THREADS", omp_num_threads);
  return environment;
}

}  // namespace lockstep::launch
