#include "runtime/launch/run/joined_run.h"

#include <signal.h>

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>
#include <variant>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/address.h"
#include "runtime/common/http/cpprest_transport.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/launch/process/own_address.h"
#include "runtime/launch/process/signals.h"
#include "runtime/launch/run/host_link.h"
#include "runtime/launch/run/local_workers.h"
#include "runtime/launch/run/machine_config.h"
#include "runtime/launch/run/run_policy.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;
using protocol::ExitCode;

// Machines may start seconds apart.
constexpr auto kQuietWait = 10s;
// For the last report; machine 0 may have ended.
constexpr auto kFarewell = 3s;

struct JoinedRunInterrupted {};
struct Answered {
  MachineReport report;
  Result<MachineAnswer> answer;
};
using JoinedRunEvent = std::variant<JoinedRunInterrupted, ChildExit, Answered>;

class JoinedRun {
 public:
  JoinedRun(const RunOptions& options, std::string address, http::HttpTransport& transport)
      : machines_(options.machines),
        host_(http::JoinHostPort(machines_.host, machines_.port)),
        config_(WorkerConfigOn(options.machines, options.job)),
        workers_({.job = options.job,
                  .folder = options.folder,
                  .program = options.program,
                  .address = std::move(address),
                  .node = "machine " + std::to_string(machines_.index),
                  .first_slot = machines_.index,
                  .prefix_ranks = options.prefix_ranks}),
        report_{
            .machine = machines_.index, .incarnation = RandomHex(8), .manifest = ManifestHash(options.job)},
        link_(transport, report_, [this](MachineReport report, Result<MachineAnswer> answer) {
          events_.Push(Answered{std::move(report), std::move(answer)});
        }) {
    config_.metrics_port = 0;
    config_.rendezvous.url = "http://" + host_;
  }

  int Run() {
    Say("according to " + machines_.launcher + "; joining machine 0 at " + host_);
    SignalThread signals([this] { events_.Push(JoinedRunInterrupted{}); },
                         [this](ChildExit exit) { events_.Push(exit); });
    while (!IsOver()) {
      const SteadyTime now = clock_.Steady();
      const SteadyTime wake = now < kill_at_ ? std::min(now + 500ms, kill_at_) : now + 500ms;
      if (auto event = events_.PopUntil(wake, {})) std::visit([this](const auto& n) { Handle(n); }, *event);
      if (clock_.Steady() >= kill_at_) workers_.SignalAll(SIGKILL);
    }
    if (end_->code != 0)
      std::cerr << "lockstep run, machine " << machines_.index << ": failed: " << end_->reason << "\n";
    return end_->code;
  }

 private:
  void Handle(const JoinedRunInterrupted&) {
    report_.is_leaving = true;
    Finish({static_cast<int>(ExitCode::kPreempted), "interrupted: its worker saves and stops"});
    Report();
  }

  void Handle(const ChildExit& exit) {
    const auto ended = workers_.TakeEnd(exit);
    if (!ended.has_value()) return;
    report_.state = WorkerState::kEnded;
    report_.end = ended->end;
    Report();
  }

  void Handle(const Answered& answered) {
    if (!answered.answer.ok()) return OnSilence(answered.answer.error());
    heard_ = clock_.Steady();
    const MachineAnswer& answer = *answered.answer;
    if (!config_.job.uid.empty() && answer.job_uid != config_.job.uid) {
      return Finish(
          {static_cast<int>(ExitCode::kRendezvous), "machine 0 was restarted: restart this one, too"});
    }
    config_.job = LocalIdentity(config_.job.name, answer.job_uid);
    if (answer.order == Order::kEnd) OnEnd({answer.code, answer.reason});
    // The answer to an older report does not apply to the current state.
    if (!Equals(answered.report, report_)) return;
    is_reported_ = true;
    if (answer.order == Order::kRun && !end_.has_value() && !workers_.AnyAlive()) StartWorker();
  }

  static bool Equals(const MachineReport& a, const MachineReport& b) {
    return a.state == b.state && a.worker == b.worker && a.is_leaving == b.is_leaving;
  }

  // How the job ended is more informative than that this machine was asked to stop.
  void OnEnd(const RunEnd& end) {
    Finish(end);
    end_ = end;
  }

  void OnSilence(const Error& error) {
    if (error.code == ErrorCode::kUnauthorized) {
      return Finish(
          {static_cast<int>(ExitCode::kBadConfiguration),
           "machine 0 at " + host_ + " refuses the token: LOCKSTEP_TOKEN must be the same on all machines"});
    }
    if (error.code == ErrorCode::kInvalidArgument) {
      return Finish({static_cast<int>(ExitCode::kBadConfiguration),
                     "machine 0 at " + host_ + " rejects the reports of this machine: " + error.message});
    }
    const SteadyTime::duration silence = clock_.Steady() - heard_;
    if (silence < kQuietWait) return;
    if (report_.state == WorkerState::kEnded && report_.end.exit_code == 0) return Finish({0, "complete"});
    const std::string what = "machine 0 does not answer at " + host_ + ": " + error.message;
    if (!std::exchange(has_reported_silence_, true)) Say(what + "; asking again");
    if (silence > Seconds(config_.rendezvous.join_timeout_seconds))
      Finish({static_cast<int>(ExitCode::kRendezvous), what + ", for rendezvous.joinTimeoutSeconds"});
  }

  void StartWorker() {
    Result<void> started = workers_.Prepare(config_, machines_.token);
    if (started.ok()) started = workers_.Start(machines_.index);
    if (!started.ok()) return Finish({static_cast<int>(ExitCode::kInfrastructure), started.error().message});
    report_.state = WorkerState::kRuns;
    report_.worker = workers_.UidOf(machines_.index);
    Report();
  }

  void Report() {
    is_reported_ = false;
    link_.Report(report_);
  }

  void Finish(RunEnd end) {
    if (end_.has_value()) return;
    end_ = std::move(end);
    kill_at_ = clock_.Steady() + TimeToEnd(end_->code, config_.grace_period_seconds);
    workers_.SignalAll(SIGTERM);
  }

  // Machine 0 waits for the last report of each machine, and may have ended if the report did not arrive in
  // time.
  [[nodiscard]] bool IsOver() {
    if (!end_.has_value() || workers_.AnyAlive()) return false;
    if (farewell_end_ == SteadyTime::max()) farewell_end_ = clock_.Steady() + kFarewell;
    return is_reported_ || clock_.Steady() >= farewell_end_;
  }

  void Say(const std::string& text) const {
    std::cout << "machine " << machines_.index << " of " << machines_.count << ": " << text << std::endl;
  }

  const SystemClock clock_;
  const Machines& machines_;
  const std::string host_;
  protocol::WorkerConfig config_;
  Queue<JoinedRunEvent> events_;
  LocalWorkers workers_;
  MachineReport report_;
  bool is_reported_ = false;  // machine 0 has the newest report
  SteadyTime heard_ = clock_.Steady();
  bool has_reported_silence_ = false;
  std::optional<RunEnd> end_;
  SteadyTime kill_at_ = SteadyTime::max();
  SteadyTime farewell_end_ = SteadyTime::max();
  HostLink link_;
};

Result<int> Join(const RunOptions& options) {
  const Machines& machines = options.machines;
  LOCKSTEP_TRY(std::string address,
               OwnAddressTowards(machines.host).WithContext("the address of machine 0, MASTER_ADDR"));
  LOCKSTEP_TRY(const auto transport,
               http::MakeTransport({.url = "http://" + http::JoinHostPort(machines.host, machines.port),
                                    .token = machines.token,
                                    .use_proxy_environment = false}));
  return JoinedRun(options, std::move(address), *transport).Run();
}

}  // namespace

int RunJoined(const RunOptions& options) {
  const Result<int> code = Join(options);
  if (code.ok()) return *code;
  std::cerr << "lockstep run, machine " << options.machines.index << ": " << code.error().message << "\n";
  return static_cast<int>(ExitCode::kBadConfiguration);
}

}  // namespace lockstep::launch
