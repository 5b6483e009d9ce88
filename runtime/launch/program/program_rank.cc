#include "runtime/launch/program/program_rank.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <variant>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/processors.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/control_link.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/process/descendants.h"
#include "runtime/launch/process/own_address.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/process/reserved_port.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/process/thread_report.h"
#include "runtime/launch/program/checkpoint_lookout.h"
#include "runtime/launch/program/parking.h"
#include "runtime/launch/program/program_life.h"
#include "runtime/launch/program/program_notice.h"
#include "runtime/launch/program/program_witness.h"
#include "runtime/launch/program/program_world.h"
#include "runtime/launch/program/rank_socket.h"
#include "runtime/launch/program/replaceable_text.h"
#include "runtime/launch/program/status_endpoint.h"
#include "runtime/launch/supervisor/rank_memory.h"

namespace lockstep::launch {
namespace {

// The exit code of shells for a command that does not exist.
constexpr int kNotFound = 127;
constexpr const char* kGlooInterface = "GLOO_SOCKET_IFNAME";
constexpr Milliseconds kObservationPeriod{100};
constexpr Milliseconds kLastLook{2'000};
// For what the program has left behind, after SIGKILL.
constexpr Milliseconds kTimeToEnd{2'000};

struct SupervisorGone {};
struct ProgramDisconnected {};
using ProgramRankEvent = std::variant<protocol::ToRank, protocol::FromRank, ProgramDisconnected, ChildExit,
                                      ProgramEnd, SupervisorGone, witness::TrainerStatus>;

protocol::Saved MessageOf(const ProgramCheckpoint& found) {
  return {.step = found.step,
          .uri = "file://" + found.path,
          .completed_at = Seconds(found.time.time_since_epoch()).count()};
}

class ProgramRank {
 public:
  explicit ProgramRank(ProgramOptions options)
      : options_(std::move(options)),
        life_(lockstep::Join(options_.command, " ")),
        parking_(witness_, options_.config.nproc),
        link_(std::move(options_.control)) {}

  int Run() {
    AdoptOrphans();
    // The supervisor decides about SIGTERM and SIGINT: it sends Stop, or closes the socket.
    SignalThread signals([] {}, [this](ChildExit exit) { events_.Push(exit); });
    link_.Start({.on_message = [this](protocol::ToRank message) { events_.Push(std::move(message)); },
                 .on_end = [this] { events_.Push(SupervisorGone{}); }});
    Execute(life_.Start());
    while (!exit_code_.has_value()) {
      if (auto event = events_.PopUntil(NextWake(), {}))
        std::visit([this](const auto& n) { Handle(n); }, *event);
      Observe();
      Execute(life_.Tick(clock_.Steady()));
    }
    return *exit_code_;
  }

 private:
  void Handle(const protocol::ToRank& message) { Execute(life_.On(message, clock_.Steady())); }
  void Handle(const protocol::FromRank& message) { Execute(life_.OnProgram(message)); }
  void Handle(const ProgramDisconnected&) { Execute(life_.OnDisconnected(clock_.Steady())); }
  void Handle(const ProgramEnd& end) { Execute(life_.On(end)); }
  void Handle(const ChildExit& exit) {
    if (parking_.HasEnded(exit) || exit.pid != pid_) return;
    EndWhatItLeftBehind();
    pid_ = 0;
    next_observation_ = {};
    Observe();  // its last steps
    if (lookout_) lookout_->ProgramEnded(kLastLook);
    ReportCheckpoint();    // one that it wrote at its end
    rank_socket_.reset();  // the last messages that it sent come before its end
    events_.Push(ProgramEnd{exit.exit_code, exit.signal, ""});
  }
  void Handle(const witness::TrainerStatus& status) { witness_.Take(status); }
  void Handle(const SupervisorGone&) {
    EndWhatItLeftBehind();
    exit_code_ = static_cast<int>(protocol::ExitCode::kInfrastructure);
  }
  // Processes of the program hold devices and ports that its successor needs. A launcher such as torchrun gives each a
  // session of its own, so their group is not enough.
  void EndWhatItLeftBehind() {
    const std::vector<pid_t> left = EndDescendants(parking_.pid(), kTimeToEnd);
    if (left.empty()) return;
    std::vector<std::string> pids;
    pids.reserve(left.size());
    for (const pid_t pid : left) pids.push_back(std::to_string(pid));
    log::Warning("processes of the program cannot be ended", {{"pids", lockstep::Join(pids, " ")}});
  }

  void Execute(const ProgramActions& actions) {
    for (const ProgramAction& action : actions) std::visit([this](const auto& a) { Do(a); }, action);
  }
  void Do(const Announce&) {
    auto port = ReservedPort::Reserve();
    if (!port.ok()) return Fail(port.error());
    port_ = std::move(*port);
    link_.Send(protocol::Ready{.step = -1, .store_port = port_.number(), .can_start_first = true});
  }
  void Do(const StartProgram& action) {
    port_ = {};  // released, because rank 0 of the program listens there
    const int threads =
        ThreadsPerRank(ProcessorsGiven(options_.config.requested_processors), options_.config.nproc);
    const int omp_num_threads = EnvOr("OMP_NUM_THREADS", "").empty() ? threads : 0;
    const auto program = FindProgram(options_.command.front(), EnvOr("PATH", "/usr/local/bin:/usr/bin:/bin"));
    if (!program.ok()) return events_.Push(ProgramEnd{kNotFound, 0, program.error().message});
    std::vector<std::string> arguments = options_.command;
    arguments.front() = *program;
    std::vector<std::string> environment =
        ProgramEnvironment(action.assignment, options_.config, omp_num_threads);
    DescribeWorld(action.assignment, environment);
    OfferNotice(environment);
    WriteLinesAtOnce(environment);
    OfferRankSocket(environment);
    OfferCheckpointMemory(environment);
    LookForCheckpoints(action.assignment.rank);
    if (options_.config.instruments_program) OfferStatusEndpoint(environment);
    ProgramStart start{.arguments = std::move(arguments), .environment = std::move(environment)};
    const auto pid = StartOrTakeParked(action.assignment.round, start);
    if (!pid.ok()) return events_.Push(ProgramEnd{kNotFound, 0, pid.error().message});
    start.pid = pid_ = *pid;
    parking_.ProgramStarted(std::move(start));
  }
  Result<pid_t> StartOrTakeParked(int64_t round, const ProgramStart& start) {
    if (auto parked = parking_.Take(start.environment)) {
      witness_.Begin(round, std::move(parked->page));
      return parked->pid;
    }
    std::vector<std::string> environment = start.environment;
    if (options_.config.instruments_program) witness_.Begin(round, environment);
    return StartProcess(
        {.arguments = start.arguments, .environment = std::move(environment), .own_group = true});
  }
  // For launchers other than torchrun.
  void DescribeWorld(const protocol::RankAssignment& assignment, std::vector<std::string>& environment) {
    const int nproc = options_.config.nproc;
    for (std::string& variable : JaxEnvironment(assignment, nproc))
      environment.push_back(std::move(variable));
    if (!gloo_interface_.has_value())
      gloo_interface_ = EnvOr(kGlooInterface, InterfaceInPlaceOfName(assignment.address).value_or(""));
    if (!gloo_interface_->empty())
      environment.push_back(std::string(kGlooInterface) + "=" + *gloo_interface_);
    if (assignment.hosts.empty()) return;
    if (const auto written = hostfile_.Set(HostfileOf(assignment.hosts, nproc)); !written.ok())
      return log::Warning("no hostfile", {{"reason", written.error().message}});
    environment.push_back("LOCKSTEP_HOSTFILE=" + hostfile_.path());
  }
  void OfferNotice(std::vector<std::string>& environment) {
    SetNotice(kNoNotice);
    if (!notice_.path().empty()) environment.push_back("LOCKSTEP_NOTICE_FILE=" + notice_.path());
  }
  // To a pipe, Python writes its lines in blocks: they would come late, and those before a SIGKILL never.
  static void WriteLinesAtOnce(std::vector<std::string>& environment) {
    if (std::getenv("PYTHONUNBUFFERED") == nullptr) environment.emplace_back("PYTHONUNBUFFERED=1");
  }
  void OfferRankSocket(std::vector<std::string>& environment) {
    auto socket =
        RankSocket::Listen({.on_message = [this](protocol::FromRank m) { events_.Push(std::move(m)); },
                            .on_end = [this] { events_.Push(ProgramDisconnected{}); }});
    if (!socket.ok())
      return log::Warning("the program cannot join its rank", {{"reason", socket.error().message}});
    rank_socket_ = std::move(socket).value();
    environment.push_back("LOCKSTEP_RANK_SOCKET=" + rank_socket_->name());
  }
  // For runtime/python/lockstep/memory.py: it outlives the program, so the next one reads its checkpoint there. It takes no memory before
  // the program writes.
  void OfferCheckpointMemory(std::vector<std::string>& environment) {
    for (Fd& segment : checkpoint_memory_) {
      if (segment.valid()) continue;
      auto made = witness::MakeMemoryFile(kCheckpointMemory);
      if (!made.ok()) return log::Warning("no memory for checkpoints", {{"reason", made.error().message}});
      segment = std::move(made).value();
    }
    environment.push_back("LOCKSTEP_CHECKPOINT_MEMORY=" + witness::PathOf(checkpoint_memory_[0]) + ":" +
                          witness::PathOf(checkpoint_memory_[1]));
  }
  void SetNotice(std::string_view text) {
    if (const auto written = notice_.Set(text); !written.ok())
      log::Warning("no notice for the program", {{"reason", written.error().message}});
  }
  // All ranks save into one folder, so one of them looks.
  void LookForCheckpoints(int rank) {
    const std::string& folder = options_.config.checkpoint_folder;
    if (folder.empty() || rank != 0) return lookout_.reset();
    if (!lookout_) return void(lookout_.emplace(folder));
    lookout_->ProgramStarted();
  }
  // Not to a job that has the endpoint of another system in its environment.
  void OfferStatusEndpoint(std::vector<std::string>& environment) {
    if (!EnvOr("KUBEFLOW_TRAINER_SERVER_URL", "").empty()) return;
    if (status_endpoint_ == nullptr) {
      auto started = StatusEndpoint::Start([this](witness::TrainerStatus status) { events_.Push(status); });
      if (!started.ok())
        return log::Warning("frameworks cannot post their status", {{"reason", started.error().message}});
      status_endpoint_ = std::move(started).value();
    }
    for (std::string& variable : status_endpoint_->Environment()) environment.push_back(std::move(variable));
  }
  void Do(const GiveNotice& action) { SetNotice(NoticeText(action.notice, clock_.Now())); }
  void Do(const SignalProgram& action) { KillGroup(pid_, action.signal); }
  void Do(const SendToProgram& action) {
    if (const auto* place = std::get_if<protocol::RankAssignment>(&action.message))
      LookForCheckpoints(place->rank);
    if (rank_socket_ != nullptr) rank_socket_->Send(action.message);
  }
  void Do(const Say& action) { link_.Send(action.message); }
  void Do(const EndRank& action) { exit_code_ = action.exit_code; }
  void Do(const AnswerForProgram&) {
    if (const auto answer = witness_.Answer()) link_.Send(*answer);
  }
  void Do(const AnswerForJoined&) {
    if (rank_socket_ != nullptr && !IsStopped(rank_socket_->program()))
      link_.Send(protocol::Pong{.may_take_long = true});
  }

  SteadyTime NextWake() const {
    const SteadyTime deadline = life_.deadline().value_or(SteadyTime::max());
    const bool observes = life_.is_running() && (witness_.is_present() || lookout_);
    return observes ? std::min(deadline, next_observation_) : deadline;
  }
  void Observe() {
    const SteadyTime now = clock_.Steady();
    if (!life_.is_running() || now < next_observation_) return;
    next_observation_ = now + kObservationPeriod;
    if (!life_.reports_itself())
      for (const protocol::FromRank& message : witness_.Observe(now)) link_.Send(message);
    parking_.Observe(witness_.Read(), now);
    ReportCheckpoint();
  }
  void ReportCheckpoint() {
    const auto found = lookout_ ? lookout_->TakeNew() : std::nullopt;
    if (found) link_.Send(MessageOf(*found));
  }

  void Fail(const Error& error) {
    link_.Send(protocol::Failed{static_cast<int>(protocol::ExitCode::kInfrastructure), error.message});
    exit_code_ = static_cast<int>(protocol::ExitCode::kInfrastructure);
  }

  ProgramOptions options_;
  const SystemClock clock_;
  ProgramLife life_;
  ReservedPort port_;
  pid_t pid_ = 0;  // of the command; 0: it is not running
  std::optional<int> exit_code_;
  ReplaceableText hostfile_;
  std::optional<std::string> gloo_interface_;  // from the first round on; empty: Gloo finds it by itself
  ReplaceableText notice_;
  std::array<Fd, 2> checkpoint_memory_;       // one is complete while the program writes the other
  std::optional<CheckpointLookout> lookout_;  // where rank 0 is, if the job names a folder
  ProgramWitness witness_;
  Parking parking_;
  SteadyTime next_observation_{};
  Queue<ProgramRankEvent> events_;
  protocol::ControlLink link_;
  // These push events, so they end before their queue.
  std::unique_ptr<StatusEndpoint> status_endpoint_;
  std::unique_ptr<RankSocket> rank_socket_;  // of the program that runs
};

}  // namespace

int RunProgramRank(ProgramOptions options) {
  // If this process were killed together with its supervisor, the processes started by the command would
  // survive, because the kernel would end the command only. The end of the socket already reports that the
  // supervisor is gone.
  ::prctl(PR_SET_PDEATHSIG, 0);
  // The command must inherit neither.
  ::fcntl(options.control.get(), F_SETFD, FD_CLOEXEC);
  if (std::freopen("/dev/null", "r", stdin) == nullptr)
    return static_cast<int>(protocol::ExitCode::kInfrastructure);
  return ProgramRank(std::move(options)).Run();
}

}  // namespace lockstep::launch
