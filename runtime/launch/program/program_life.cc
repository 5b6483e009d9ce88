#include "runtime/launch/program/program_life.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/supervisor/hang_detector.h"

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
ProgramAction NotJudged() { return Say{protocol::PhaseChanged{protocol::RankPhase::kProgram}}; }

Notice NoticeOf(const protocol::NodeDeparts& departs) {
  Notice notice{.reason = NoticeReason::kNodeDeparts, .detail = departs.reason};
  if (departs.deadline > 0)
    notice.until = WallTime(std::chrono::duration_cast<WallTime::duration>(Seconds(departs.deadline)));
  return notice;
}

}  // namespace

ProgramActions ProgramLife::Start() const { return {Announce{}}; }

ProgramActions ProgramLife::On(const protocol::ToRank& message, SteadyTime now) {
  return std::visit([&](const auto& m) { return Handle(m, now); }, message);
}

ProgramActions ProgramLife::Handle(const protocol::RankAssignment& assignment, SteadyTime) {
  if (state_ == State::kIdle) return StartInRound(assignment);
  // It answers the Ready of a program that has ended since; the supervisor will read that.
  if (!joined_) return {};
  assignment_ = assignment;
  in_round_ = true;
  said_finished_ = false;
  return {SendToProgram{assignment}};
}

ProgramActions ProgramLife::StartInRound(const protocol::RankAssignment& assignment) {
  assignment_ = assignment;
  in_round_ = true;
  joins_ = false;
  state_ = State::kRunning;
  // The beginning of a round is the only progress of a program that no witness observes.
  return {StartProgram{assignment}, NotJudged(), Say{protocol::Progress{.round = assignment.round}}};
}

// The variables are those of the last round, so that a script that reads LOCAL_RANK still works.
ProgramActions ProgramLife::StartWithoutRound() {
  state_ = State::kRunning;
  return {StartProgram{assignment_}, NotJudged()};
}

ProgramActions ProgramLife::Handle(const protocol::RoundOver& over, SteadyTime now) {
  if (over.round != assignment_.round) return {};
  const bool was_in_round = std::exchange(in_round_, false);
  if (joined_) return {SendToProgram{over}};
  if (state_ != State::kRunning || !was_in_round) return {};
  if (joins_) {  // it has closed its connection, and its end says whether it has failed
    deadline_ = now + kLeaveTime;
    return {};
  }
  state_ = State::kLeaving;
  deadline_ = now + kLeaveTime;
  return {NotJudged(), GiveNotice{{NoticeReason::kRoundOver, kLeaveTime}}, SignalProgram{SIGTERM}};
}

ProgramActions ProgramLife::Handle(const protocol::Stop& stop, SteadyTime now) {
  if (state_ == State::kIdle) return {EndRank{static_cast<int>(protocol::ExitCode::kPreempted)}};
  const Seconds left(std::max(0.0, stop.grace_seconds - kWayOutSeconds));
  ProgramActions actions = {NotJudged(), GiveNotice{{NoticeReason::kTermination, left}}};
  if (joined_) {
    actions.emplace_back(SendToProgram{protocol::Stop{left.count()}});
  } else if (state_ == State::kRunning) {
    actions.emplace_back(SignalProgram{SIGTERM});
  }
  state_ = State::kStopping;
  deadline_ = now + std::chrono::duration_cast<SteadyTime::duration>(left);
  return actions;
}

ProgramActions ProgramLife::Handle(const protocol::NodeDeparts& departs, SteadyTime) const {
  if (state_ != State::kRunning) return {};
  return {GiveNotice{NoticeOf(departs)}};
}

ProgramActions ProgramLife::Handle(const protocol::KillProgram&, SteadyTime) const {
  if (state_ == State::kIdle) return {};
  return {SignalProgram{SIGKILL}};
}

ProgramActions ProgramLife::Handle(const protocol::StartFirst& start, SteadyTime) {
  if (state_ != State::kIdle) return {};
  if (assignment_.round == 0) assignment_.local_rank = start.local_rank;
  joins_ = true;
  return StartWithoutRound();
}

ProgramActions ProgramLife::Handle(const protocol::Ping& ping, SteadyTime) const {
  if (joined_) return {AnswerForJoined{}, SendToProgram{ping}};
  if (state_ != State::kRunning) return {Say{protocol::Pong{}}};
  return {AnswerForProgram{}};
}

ProgramActions ProgramLife::Handle(const protocol::Save& save, SteadyTime) { return PassOnceJoined(save); }

ProgramActions ProgramLife::Handle(const protocol::ProfileWanted& wanted, SteadyTime) {
  return PassOnceJoined(wanted);
}

// The supervisor does not repeat a request in the same round, and the program may still import its modules.
ProgramActions ProgramLife::PassOnceJoined(const protocol::ToRank& request) {
  if (joined_) return {SendToProgram{request}};
  if (state_ == State::kRunning) requests_.push_back(request);
  return {};
}

ProgramActions ProgramLife::OnProgram(const protocol::FromRank& message) {
  if (const auto* ready = std::get_if<protocol::Ready>(&message)) return OnReady(*ready);
  if (!joined_) return {};
  if (const auto* failed = std::get_if<protocol::Failed>(&message)) {
    failure_ = *failed;
    return {};
  }
  if (std::holds_alternative<protocol::Finished>(message)) said_finished_ = true;
  const auto* broken = std::get_if<protocol::Broken>(&message);
  if (broken != nullptr && broken->round == assignment_.round) in_round_ = false;
  return {Say{message}};
}

ProgramActions ProgramLife::OnReady(const protocol::Ready& ready) {
  if (state_ != State::kRunning || is_killed_) return {};  // it is about to end
  const bool joins_now = !std::exchange(joined_, true);
  joins_ = true;
  deadline_.reset();
  if (!joins_now || !in_round_) {
    in_round_ = false;
    return {Say{ready}};
  }
  // From here on it is judged as a rank that has just got this assignment.
  ProgramActions actions = {SendToProgram{assignment_},
                            Say{protocol::PhaseChanged{protocol::RankPhase::kSync}}};
  for (protocol::ToRank& request : std::exchange(requests_, {}))
    actions.emplace_back(SendToProgram{std::move(request)});
  return actions;
}

// A program that ends closes its connection as well. So this alone does not say whether it fails, and a signal would change
// its exit code.
ProgramActions ProgramLife::OnDisconnected(SteadyTime now) {
  if (!std::exchange(joined_, false) || state_ != State::kRunning) return {};
  if (!in_round_) deadline_ = now + kLeaveTime;
  return {NotJudged()};
}

ProgramActions ProgramLife::On(const ProgramEnd& end) {
  const State before = std::exchange(state_, State::kIdle);
  const protocol::Failed failure = FailureOf(end);
  const bool said_finished = std::exchange(said_finished_, false);
  failure_.reset();
  deadline_.reset();
  requests_.clear();
  is_killed_ = false;
  joined_ = false;
  in_round_ = false;
  switch (before) {
    case State::kIdle: return {};
    case State::kLeaving: return {Announce{}};
    // Also with exit code 0: a program that cleans up after SIGTERM has not finished its work.
    case State::kStopping: return {EndRank{static_cast<int>(protocol::ExitCode::kPreempted)}};
    case State::kRunning: break;
  }
  ProgramActions actions;
  if (end.exit_code == 0 && end.signal == 0) {
    if (!said_finished) actions.emplace_back(Say{protocol::Finished{}});
    actions.emplace_back(Announce{});
    return actions;
  }
  actions.emplace_back(Say{failure});
  if (!joins_) {
    actions.emplace_back(Announce{});
    return actions;
  }
  for (ProgramAction& action : StartWithoutRound()) actions.push_back(std::move(action));
  return actions;
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

protocol::Failed ProgramLife::FailureOf(const ProgramEnd& end) const {
  protocol::Failed failure = failure_.value_or(protocol::Failed{});
  failure.exit_code = end.exit_code;
  if (failure.reason.empty()) failure.reason = Describe(end);
  failure.rank_continues = true;
  return failure;
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
