#include "runtime/launch/run/local_run.h"

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <thread>
#include <variant>

#include "runtime/common/api/rendezvous_settings_of.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/server.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/common/rendezvous/service.h"
#include "runtime/launch/process/own_address.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/run/local_workers.h"
#include "runtime/launch/run/machine_config.h"
#include "runtime/launch/run/machine_roll.h"
#include "runtime/launch/run/progress_lines.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// A signal cannot carry a number of steps.
constexpr int kProfiledSteps = 5;

struct LocalRunInterrupted {};
struct AskedToSave {};
struct AskedToProfile {};
struct Reported {
  MachineReport report;
  http::Responder respond;
};
using LocalRunEvent = std::variant<LocalRunInterrupted, AskedToSave, AskedToProfile, ChildExit, Reported>;

// Constant-time comparison.
bool IsSame(const std::string& given, const std::string& token) {
  unsigned char difference = given.size() == token.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(given.size(), token.size()); ++i)
    difference = static_cast<unsigned char>(difference | (given[i] ^ token[i]));
  return difference == 0;
}

class LocalRun {
 public:
  // Without `is_enough` it shows the progress, until the job ends.
  LocalRun(const RunOptions& options, std::string address, IsEnough is_enough)
      : options_(options),
        is_enough_(std::move(is_enough)),
        job_(LocalIdentity(options.job.metadata.name, RandomHex(8))),
        token_(IsOneOfSeveral() ? options.machines.token : RandomHex(16)),
        config_(WorkerConfigOn(options.machines, options.job)),
        policy_(options.job.spec.failure_policy.max_restarts, !options.job.spec.training),
        service_(
            clock_,
            [this](const rendezvous::Claim& claim, auto done) {
              IsSame(claim.token, token_) ? done({}) : done(Error{ErrorCode::kUnauthorized, "wrong token"});
            },
            [](const protocol::JobIdentity&) {}),
        workers_({.job = options.job,
                  .folder = options.folder,
                  .program = options.program,
                  .address = std::move(address),
                  .node = NodeOf(0),
                  .count = OwnWorkers(),
                  .prefix_ranks = options.prefix_ranks}),
        roll_({.count = options.machines.count,
               .manifest = ManifestHash(options.job),
               .job_uid = job_.uid,
               .silence = std::chrono::seconds(options.job.spec.rendezvous.heartbeat_timeout_seconds)},
              {.on_end = [this](int machine, const std::string& worker,
                                const WorkerEnd& end) { return Judge(machine, worker, end); },
               .on_lost =
                   [this](int machine, const std::string& worker, const std::string& why) {
                     PodGone(machine, worker, {.reason = why, .cause = protocol::FailureCause::kPreemption});
                   }}) {}

  Result<RunEnd> Run() {
    LOCKSTEP_TRY(Prepare());
    std::jthread ticker([this](std::stop_token stop) {
      while (!stop.stop_requested()) {
        service_.Tick();
        std::this_thread::sleep_for(20ms);
      }
    });
    SignalThread signals([this] { events_.Push(LocalRunInterrupted{}); },
                         [this](ChildExit exit) { events_.Push(exit); },
                         [this] { events_.Push(AskedToSave{}); }, [this] { events_.Push(AskedToProfile{}); });
    for (int slot = 0; slot < OwnWorkers(); ++slot) StartWorker(slot);
    while (!end_.has_value() || !IsOver()) {
      const SteadyTime now = clock_.Steady();
      const SteadyTime wake = now < kill_at_ ? std::min(now + 500ms, kill_at_) : now + 500ms;
      if (auto event = events_.PopUntil(wake, {})) std::visit([this](auto& n) { Handle(n); }, *event);
      Look(service_.View(job_));
      if (someone_is_through_ && !AnyAlive()) Finish({0, "complete"});
      if (clock_.Steady() >= kill_at_) workers_.SignalAll(SIGKILL);
    }
    if (!is_enough_) ShowEnd();
    return *end_;
  }

 private:
  [[nodiscard]] bool IsOneOfSeveral() const { return options_.machines.count > 1; }
  [[nodiscard]] int OwnWorkers() const { return IsOneOfSeveral() ? 1 : options_.job.spec.pod_count(); }
  [[nodiscard]] std::string NodeOf(int machine) const {
    return IsOneOfSeveral() ? "machine " + std::to_string(machine) : "local";
  }

  Result<void> Prepare() {
    for (const std::string& name : workers_.LeftOut())
      Say(name + " is not set: its valueFrom needs a cluster");
    http::ServerOptions server;
    if (IsOneOfSeveral()) server.address = ":" + std::to_string(options_.machines.port);
    auto started = http::StartServer(server, [this](http::ServerRequest request, http::Responder respond) {
      if (request.path == kMachinePath) return TakeReport(request, respond);
      service_.Handle(std::move(request), std::move(respond));
    });
    if (!started.ok() && IsOneOfSeveral())
      return started.error().WithContext(
          "set MASTER_PORT, for all machines, to a port that is free on machine 0");
    LOCKSTEP_TRY(server_, std::move(started));
    settings_ = api::RendezvousSettingsOf(options_.job.spec);
    // On a single machine no scheduler places further workers, so there is none to wait for.
    if (!IsOneOfSeveral()) settings_.grow_delay = 0ms;
    service_.Configure(job_, settings_);
    config_.job = job_;
    config_.rendezvous.url = "http://127.0.0.1:" + std::to_string(server_->port());
    config_.metrics_port = 0;
    LOCKSTEP_TRY(workers_.Prepare(config_, token_));
    if (IsOneOfSeveral()) {
      Say("machine 0 of " + std::to_string(options_.machines.count) + ", according to " +
          options_.machines.launcher + "; the others join it at " +
          http::JoinHostPort(options_.machines.host, server_->port()));
    }
    return {};
  }

  // Runs on the server's thread.
  void TakeReport(const http::ServerRequest& request, const http::Responder& respond) {
    const auto refuse = [&](int status, const std::string& why) {
      respond(http::JsonResponse(status, DumpJson({{"error", why}})));
    };
    const auto given = request.headers.find("authorization");
    if (given == request.headers.end() || !IsSame(given->second, "Bearer " + token_))
      return refuse(401, "wrong token");
    const auto json = ParseJson(request.body);
    if (!json.ok()) return refuse(400, json.error().message);
    auto report = MessageFromJson<MachineReport>(*json);
    if (!report.ok()) return refuse(400, report.error().message);
    events_.Push(Reported{std::move(report).value(), respond});
  }

  void Look(const rendezvous::RendezvousView& view) {
    if (!is_enough_) return progress_.Show(view, clock_.Steady());
    if (!end_.has_value() && is_enough_(view)) Finish({0, "ended on request"});
  }

  void StartWorker(int slot) {
    if (const Result<void> started = workers_.Start(slot); !started.ok())
      Finish({static_cast<int>(protocol::ExitCode::kInfrastructure), started.error().message});
  }

  void Handle(const LocalRunInterrupted&) {
    Finish({static_cast<int>(protocol::ExitCode::kPreempted), "interrupted: the workers save and stop"});
  }

  void Handle(const AskedToSave&) {
    // A program that has joined knows its own folder.
    if (options_.job.spec.training && !options_.job.spec.checkpoint)
      return Say("asked to save, but the manifest has no spec.checkpoint");
    settings_.save_request = std::to_string(++saves_asked_for_);
    service_.Configure(job_, settings_);
  }

  void Handle(const AskedToProfile&) {
    if (!options_.job.spec.training)
      return Say(
          "asked for a profile, but the manifest has no spec.training: a program's steps are not known");
    settings_.profile_request = std::to_string(++profiles_asked_for_);
    settings_.profile_steps = kProfiledSteps;
    service_.Configure(job_, settings_);
  }

  void Handle(const ChildExit& exit) {
    const auto ended = workers_.TakeEnd(exit);
    if (ended.has_value() && Judge(ended->slot, ended->uid, ended->end) == Order::kRun)
      StartWorker(ended->slot);
  }

  void Handle(const Reported& reported) {
    const MachineAnswer answer = roll_.On(reported.report, end_, clock_.Steady());
    reported.respond(http::JsonResponse(200, DumpJson(MessageToJson(answer))));
  }

  Order Judge(int slot, const std::string& worker, const WorkerEnd& end) {
    const bool is_program = !options_.job.spec.training;
    PodGone(slot, worker,
            {.reason = "process ended with code " + std::to_string(end.exit_code),
             .cause = protocol::CauseOf(protocol::MeaningOf(end.exit_code, is_program)),
             .exit_code = end.exit_code});
    if (end_.has_value()) return Order::kRest;
    const Verdict verdict = policy_.Judge(end, service_.View(job_).completed);
    if (verdict.order == Order::kRest) someone_is_through_ = true;
    if (verdict.order == Order::kRun) SayRestart(slot, end);
    if (verdict.end.has_value()) Finish(*verdict.end);
    return verdict.order;
  }

  void SayRestart(int slot, const WorkerEnd& end) {
    Say(workers_.NameOf(slot) + " ended (" +
        (end.signal != 0 ? "signal " + std::to_string(end.signal) : "code " + std::to_string(end.exit_code)) +
        ")" + (end.reason.empty() ? "" : ": " + end.reason.substr(0, end.reason.find('\n'))) +
        "; starting it again");
  }

  void PodGone(int slot, const std::string& worker, rendezvous::PodEnd end) {
    end.pod_uid = worker;
    end.node = NodeOf(slot);
    service_.PodGone(job_, end);
  }

  void Finish(RunEnd end) {
    if (end_.has_value()) return;
    end_ = std::move(end);
    kill_at_ = clock_.Steady() + TimeToEnd(end_->code, config_.grace_period_seconds);
    workers_.SignalAll(SIGTERM);
  }

  // The other machines get the end of the job in the answers to their reports.
  [[nodiscard]] bool IsOver() const {
    const SteadyTime now = clock_.Steady();
    return !workers_.AnyAlive() && (!roll_.AwaitsAny(now) || now >= kill_at_);
  }

  [[nodiscard]] bool AnyAlive() const { return workers_.AnyAlive() || roll_.AnyRuns(clock_.Steady()); }

  void ShowEnd() {
    progress_.End(service_.View(job_), clock_.Steady());
    const double seconds = Seconds(clock_.Steady() - started_).count();
    if (end_->code == 0) return Say("complete after " + FormatNumber(seconds, 3) + " s");
    std::cerr << "lockstep run: failed: " << end_->reason << "\n  worker logs: " << options_.folder
              << "/*.log\n";
  }

  void Say(const std::string& text) {
    if (!is_enough_) progress_.Say(text);
  }

  const RunOptions& options_;
  const IsEnough is_enough_;
  const SystemClock clock_;
  const SteadyTime started_ = clock_.Steady();
  const protocol::JobIdentity job_;
  const std::string token_;
  protocol::WorkerConfig config_;
  rendezvous::JobSettings settings_;
  int saves_asked_for_ = 0;
  int profiles_asked_for_ = 0;
  RunPolicy policy_;
  rendezvous::RendezvousService service_;
  Queue<LocalRunEvent> events_;
  std::unique_ptr<http::HttpServer> server_;
  LocalWorkers workers_;
  MachineRoll roll_;
  ProgressLines progress_;
  bool someone_is_through_ = false;
  std::optional<RunEnd> end_;
  SteadyTime kill_at_ = SteadyTime::max();
};

// The address of machine 0. Its own name often resolves to 127.0.1.1 on itself, that of another machine does
// not.
Result<std::string> AddressOfHost(const Machines& machines) {
  if (machines.count == 1) return std::string("127.0.0.1");
  auto address = OwnAddressTowards(machines.host);
  if (!address.ok() && !machines.neighbour.empty()) address = OwnAddressTowards(machines.neighbour);
  if (address.ok()) return address;
  return address.error().WithContext(
      "set MASTER_ADDR to an address by which the other machines reach this one");
}

}  // namespace

int RunLocally(const RunOptions& options) {
  const auto address = AddressOfHost(options.machines);
  if (!address.ok()) {
    std::cerr << "lockstep run: " << address.error().message << "\n";
    return static_cast<int>(protocol::ExitCode::kBadConfiguration);
  }
  const Result<RunEnd> end = LocalRun(options, *address, {}).Run();
  if (end.ok()) return end->code;
  std::cerr << "lockstep run: " << end.error().message << "\n";
  return 1;
}

Result<RunEnd> RunUntil(const RunOptions& options, const IsEnough& is_enough) {
  LOCKSTEP_TRY(std::string address, AddressOfHost(options.machines));
  return LocalRun(options, std::move(address), is_enough).Run();
}

}  // namespace lockstep::launch
