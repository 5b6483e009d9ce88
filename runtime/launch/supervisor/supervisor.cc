#include "runtime/launch/supervisor/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/enum_text.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/http/server.h"
#include "runtime/launch/process/oom_watch.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/process/thread_report.h"
#include "runtime/launch/supervisor/formation_host.h"
#include "runtime/launch/supervisor/gpu_selection.h"
#include "runtime/launch/supervisor/instance_metadata.h"
#include "runtime/launch/supervisor/milestones.h"
#include "runtime/launch/supervisor/nccl_ras.h"
#include "runtime/launch/supervisor/poller.h"
#include "runtime/launch/supervisor/rank_memory.h"
#include "runtime/launch/supervisor/rank_process.h"
#include "runtime/launch/supervisor/reporter.h"
#include "runtime/launch/supervisor/supervision.h"
#include "runtime/launch/supervisor/termination_log.h"
#include "runtime/telemetry/gpu_watch.h"
#include "runtime/telemetry/training_metrics.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 200ms;
// A rendezvous that is there takes a report within milliseconds.
constexpr auto kReportsBeforeJoin = 500ms;

struct SocketEnded {
  int local_rank = 0;
  uint64_t life = 0;
};
struct FromLife {
  uint64_t life = 0;
  RankMessage message;
};

bool DividesState(const protocol::WorkerConfig& config) {
  const auto strategy = EnumFromName<api::Strategy>(config.training.value("strategy", ""));
  return strategy.has_value() && api::DividesState(*strategy);  // a program has none
}

std::string UrlOf(const FormationAddress& at) { return "http://" + http::JoinHostPort(at.host, at.port); }

// The events of all threads, for the single thread that makes decisions.
using SupervisorEvent = std::variant<Event, FromLife, SocketEnded, ChildExit>;

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, http::HttpTransport& transport)
      : options_(options),
        client_(transport),
        supervision_({options.config, options.member, options.address, options.is_program,
                      DividesState(options.config)}),
        formations_(clock_),
        metrics_(options.config, options.member.slot),
        ranks_(static_cast<std::size_t>(options.config.nproc)),
        reporter_(client_, [this](int64_t round, Result<protocol::WatchAnswer> answer) {
          events_.Push(Event(HeartbeatAnswered{round, std::move(answer)}));
        }) {}

  int Run() {
    if (const Result<void> served = Serve(); !served.ok()) {
      log::Error("metrics cannot be served", {{"error", served.error().ToString()}});
      return 1;
    }
    WatchGpus();
    WatchForDeparture();
    SignalThread signals([this] { events_.Push(Event(Terminate{})); },
                         [this](ChildExit exit) { events_.Push(exit); });
    Execute(supervision_.Start(clock_.Steady()));
    while (!exit_code_.has_value()) {
      if (auto event = events_.PopUntil(std::min({next_beat_, grace_end_, next_tick_}), {})) {
        std::visit([this](auto& n) { Handle(n); }, *event);
      }
      const SteadyTime now = clock_.Steady();
      if (now >= next_beat_) Beat();
      if (now >= next_tick_) {
        next_tick_ = now + kTick;
        formations_.Tick();
        Decide(Tick{});
      }
      if (now >= grace_end_) {
        grace_end_ = SteadyTime::max();
        Decide(GraceOver{});
      }
    }
    return *exit_code_;
  }

 private:
  struct Slot {
    std::unique_ptr<RankProcess> process;
    uint64_t life = 0;  // distinguishes events of this process from those of its predecessor
    bool socket_ended = false;
    std::optional<ChildExit> exit;
  };

  void Handle(Event& event) { Decide(event); }
  void Handle(FromLife& from) {
    if (from.life != slot(from.message.local_rank).life) return;
    metrics_.Observe(from.message.local_rank, from.message.message);
    LogMilestone(from.message);
    Decide(from.message);
    const auto* failed = std::get_if<protocol::Failed>(&from.message.message);
    const auto& process = slot(from.message.local_rank).process;
    if (failed == nullptr || !failed->rank_continues || process == nullptr) return;
    ReportFailure(from.message.local_rank, failed->exit_code, 0, process->TakeLastLinesOfProgram());
  }
  void Handle(SocketEnded& ended) {
    Slot& at = slot(ended.local_rank);
    if (ended.life != at.life) return;
    at.socket_ended = true;
    ReportEndOf(ended.local_rank);
  }
  void Handle(ChildExit& exit) {
    for (int i = 0; i < options_.config.nproc; ++i) {
      if (slot(i).process == nullptr || slot(i).process->pid() != exit.pid) continue;
      slot(i).exit = exit;
      ReportEndOf(i);
    }
  }
  void ReportEndOf(int local_rank) {
    Slot& at = slot(local_rank);
    if (!at.socket_ended || !at.exit.has_value()) return;
    const ChildExit exit = *at.exit;
    std::string last_lines = at.process->TakeLastLines();
    at = Slot{.process = nullptr, .life = at.life};
    ReportFailure(local_rank, exit.exit_code, exit.signal, std::move(last_lines));
  }
  // `signal`: of the rank's process; 0 for a program that a signal has ended.
  void ReportFailure(int local_rank, int exit_code, int signal, std::string last_lines) {
    const bool was_killed = exit_code == 128 + SIGKILL;
    Decide(RankExited{.local_rank = local_rank,
                      .exit_code = signal == 0 ? exit_code : 0,
                      .signal = signal,
                      .out_of_memory = was_killed && oom_watch_.TookSomething(),
                      .last_lines = std::move(last_lines)});
  }

  void Decide(const Event& event) { Execute(supervision_.On(event, clock_.Steady())); }
  void Execute(const Actions& actions) {
    for (const Action& action : actions) std::visit([this](const auto& a) { Do(a); }, action);
  }

  void Do(const SpawnRank& action) {
    Slot& at = slot(action.local_rank);
    if (at.process != nullptr) return;  // only its program has ended
    const uint64_t life = ++at.life;
    at = Slot{.process = nullptr, .life = life};
    auto process = RankProcess::Start(options_.rank_command, action.local_rank,
                                      {.on_message =
                                           [this, life, i = action.local_rank](protocol::FromRank message) {
                                             events_.Push(FromLife{life, {i, std::move(message)}});
                                           },
                                       .on_socket_end =
                                           [this, life, i = action.local_rank] {
                                             events_.Push(SocketEnded{i, life});
                                           }},
                                      options_.output);
    if (!process.ok()) return Finish(1, "starting a rank process: " + process.error().message);
    at.process = std::move(process).value();
    log::Info("rank process started", {{"local_rank", action.local_rank}, {"pid", at.process->pid()}});
  }
  void Do(const DropRank& action) { slot(action.local_rank).process.reset(); }
  void Do(const KillRank& action) { Signal(action.local_rank, SIGKILL); }
  void Do(const ReportHang& action) {
    metrics_.CountHang(action.local_rank);
    log::Error("rank hangs", {{"local_rank", action.local_rank},
                              {"phase", lockstep::NameOf(action.finding.phase)},
                              {"silent_seconds", action.finding.silent_seconds},
                              {"bound_seconds", action.finding.bound_seconds},
                              {"why", action.finding.why}});
  }
  void Do(const WriteStack& action) {
    const auto& process = slot(action.local_rank).process;
    if (process == nullptr) return;
    log::Warning("threads of the rank that hangs",
                 {{"local_rank", action.local_rank}, {"threads", DescribeThreads(process->pid())}});
    Signal(action.local_rank, SIGUSR1);
  }
  void Do(const AskNccl& action) {
    nccl_poller_.Start(0ms, [this, action](const std::stop_token& stop) {
      const auto answer = AskRas(EnvOr("NCCL_RAS_ADDR", ""), kNcclTime, stop);
      const auto found = answer.ok() ? ParseRasAnswer(*answer) : answer.error();
      if (!found.ok() || !HasProcessOf(::getpid(), *found)) return;
      const std::string text = DescribeRas(*found, action.world);
      if (text.empty()) return;
      log::Warning("NCCL's view of the hang", {{"round", action.formation}, {"nccl", text}});
      events_.Push(Event(NcclAnswered{action.formation, text}));
    });
  }
  void Do(const SendToRank& action) {
    // The only line that exists for every rank of every round: `kubectl lockstep logs --rank` finds the pod
    // by it.
    if (const auto* place = std::get_if<protocol::RankAssignment>(&action.message)) {
      log::Info("rank placed",
                {{"local_rank", action.local_rank}, {"rank", place->rank}, {"round", place->round}});
      metrics_.SetPlace(action.local_rank, place->rank, place->world);
    }
    if (const auto& process = slot(action.local_rank).process) process->Send(action.message);
  }
  void Do(const StartJoin& action) {
    protocol::JoinRequest request = action.request;
    request.form_port = server_->port();
    request.form_key = formations_.key();
    poller_.Start(action.delay, [this, request = std::move(request)](std::stop_token stop) {
      // The rank of a program is Ready at once: its join must not overtake its leave, which would end the new round.
      if (options_.is_program) reporter_.Flush(kReportsBeforeJoin);
      auto answer = client_.Join(request, stop);
      if (!stop.stop_requested()) events_.Push(Event(JoinAnswered{std::move(answer)}));
    });
  }
  void Do(const StartWatch& action) {
    poller_.Start(action.delay, [this, request = action.request](std::stop_token stop) {
      auto answer = client_.Watch(request, stop);
      if (!stop.stop_requested()) events_.Push(Event(WatchAnswered{request.round, std::move(answer)}));
    });
  }
  void Do(const ReportWaiting& action) {
    log::Info("waiting for other pods to start", {{"waits_for", action.waits_for}});
  }
  void Do(const StopPolling&) { poller_.Stop(); }
  void Do(const HostFormations& action) { formations_.Host(action.round, action.world); }
  void Do(const StartForming& action) {
    if (action.delay.count() == 0) {
      log::Warning("the rendezvous does not answer: asking the members to form the round again",
                   {{"round", action.request.round}, {"at", action.at.host}});
    }
    member_poller_.Start(action.delay, [this, action](std::stop_token stop) {
      auto answer = AskMembers<protocol::FormAnswer>(action.at, [&](rendezvous::RendezvousClient& members) {
        return members.Form(action.request, stop);
      });
      if (!stop.stop_requested()) events_.Push(Event(FormAnswered{std::move(answer)}));
    });
  }
  void Do(const StartFormationWatch& action) {
    member_poller_.Start(action.delay, [this, action](std::stop_token stop) {
      auto answer = AskMembers<protocol::WatchAnswer>(action.at, [&](rendezvous::RendezvousClient& members) {
        return members.WatchFormation(action.request, stop);
      });
      if (!stop.stop_requested())
        events_.Push(Event(FormationWatchAnswered{action.request.formation, std::move(answer)}));
    });
  }
  void Do(const StopAskingMembers&) { member_poller_.Stop(); }
  void Do(const ForgetReports&) { reporter_.Forget(); }
  void Do(const ReportBroken& action) {
    log::Warning("round broken", {{"round", action.report.round}, {"reason", action.report.reason}});
    reporter_.Send(action.report);
  }
  void Do(const ReportLeave& action) {
    log::Info("leaving the round", {{"round", action.request.round}, {"reason", action.request.detail}});
    reporter_.Send(action.request);
  }
  void Do(const BeatNow&) { Beat(); }
  void Do(const StartGrace& action) {
    grace_end_ = clock_.Steady() + std::chrono::duration_cast<SteadyTime::duration>(Seconds(action.seconds));
  }
  void Do(const Exit& action) { Finish(action.code, action.reason, action.last_lines); }

  void Finish(int code, const std::string& reason, const std::string& last_lines = "") {
    log::Info("worker ends", {{"exit_code", code}, {"reason", reason}});
    // Before the flush: the kubelet may kill the process during the flush when the grace period is over.
    if (code != 0) WriteReasonOfEnd(options_.termination_log, reason, last_lines);
    const SteadyTime begun = clock_.Steady();
    reporter_.Flush(3s);
    if (code == 0) WriteLastReport(options_.termination_log, LastHeartbeat(clock_.Steady() - begun));
    exit_code_ = code;
  }

  // `flushed`: how long the last messages waited for the rendezvous.
  protocol::Heartbeat LastHeartbeat(Seconds flushed) const {
    protocol::Heartbeat heartbeat = supervision_.CurrentHeartbeat();
    if (heartbeat.progress.step > 0) heartbeat.seconds_since_step += flushed.count();
    return heartbeat;
  }

  void Signal(int local_rank, int signal) {
    if (const auto& process = slot(local_rank).process) KillProcess(process->pid(), signal);
  }

  void Beat() {
    reporter_.Send(supervision_.CurrentHeartbeat());
    MeasureMemory();
    next_beat_ = clock_.Steady() + std::chrono::duration_cast<SteadyTime::duration>(
                                       Seconds(options_.config.rendezvous.heartbeat_interval_seconds));
  }

  void MeasureMemory() {
    // `lockstep-rank` starts no others.
    const ProcessTable processes = options_.is_program ? ProcessTable::Read() : ProcessTable();
    for (int i = 0; i < options_.config.nproc; ++i) {
      const auto& process = slot(i).process;
      const auto memory = process == nullptr ? std::nullopt : MemoryOfRank(process->pid(), processes);
      if (memory.has_value()) metrics_.SetMemory(i, memory->resident_bytes, memory->checkpoint_bytes);
    }
  }

  template <typename Answer, typename Ask>
  static Result<Answer> AskMembers(const FormationAddress& at, Ask ask) {
    LOCKSTEP_TRY(const auto transport,
                 http::MakeTransport({.url = UrlOf(at), .token = at.key, .use_proxy_environment = false}));
    rendezvous::RendezvousClient members(*transport);
    return ask(members);
  }

  Result<void> Serve() {
    http::ServerOptions server{.address = ":" + std::to_string(options_.config.metrics_port)};
    LOCKSTEP_TRY(server_,
                 http::StartServer(server, [this](http::ServerRequest request, http::Responder respond) {
                   if (request.path == protocol::kFormPath || request.path == protocol::kFormationWatchPath)
                     return formations_.Handle(request, respond);
                   if (request.path == "/metrics") return respond(metrics_.Scrape());
                   if (request.path == "/healthz") return respond(http::TextResponse(200, "ok\n"));
                   respond(http::TextResponse(404, "try /metrics\n"));
                 }));
    log::Info("serving metrics", {{"port", server_->port()}});
    return {};
  }

  void WatchGpus() {
    const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
    telemetry::GpuSelection gpus =
        GpusOf(options_.config, options_.is_program,
               visible == nullptr ? std::nullopt : std::optional<std::string>(visible));
    if (gpus.most > 0) gpu_watch_.emplace(metrics_, telemetry::kNvmlLibrary, std::move(gpus));
  }

  // Only programs get notices: a rank of ours saves when it is asked to stop, and its peers hold its state.
  void WatchForDeparture() {
    const protocol::InstanceMetadata cloud = options_.config.health.instance_metadata;
    if (!options_.is_program || cloud == protocol::InstanceMetadata::kNone) return;
    auto watch = DepartureWatch::Start(cloud, [this](const protocol::NodeDeparts& departs) {
      log::Warning("the cloud takes this machine away", {{"reason", departs.reason}});
      events_.Push(Event(DepartureFound{departs}));
    });
    if (!watch.ok())
      return log::Warning("departures of this machine are not seen", {{"error", watch.error().message}});
    departure_watch_ = std::move(watch).value();
  }

  Slot& slot(int local_rank) { return ranks_.at(static_cast<std::size_t>(local_rank)); }

  const SupervisorOptions& options_;
  const SystemClock clock_;
  rendezvous::RendezvousClient client_;
  Supervision supervision_;
  FormationHost formations_;
  telemetry::TrainingMetrics metrics_;
  std::optional<telemetry::GpuWatch> gpu_watch_;
  std::unique_ptr<http::HttpServer> server_;  // serves metrics and formations
  Queue<SupervisorEvent> events_;
  std::vector<Slot> ranks_;
  Reporter reporter_;
  Poller poller_;
  Poller member_poller_;
  Poller nccl_poller_;
  std::unique_ptr<DepartureWatch> departure_watch_;
  SteadyTime next_beat_{};
  SteadyTime next_tick_{};
  SteadyTime grace_end_ = SteadyTime::max();
  OomWatch oom_watch_{MemoryEventsFile()};
  std::optional<int> exit_code_;
};

}  // namespace

int RunSupervisor(const SupervisorOptions& options, http::HttpTransport& transport) {
  return Supervisor(options, transport).Run();
}

}  // namespace lockstep::launch
