#include "runtime/launch/local_run.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/common/api/names.h"
#include "runtime/common/api/program_of.h"
#include "runtime/common/api/rendezvous_settings_of.h"
#include "runtime/common/api/worker_config_of.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/queue.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/http/server.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/common/protocol/exit_codes.h"
#include "runtime/common/rendezvous/service.h"
#include "runtime/launch/process.h"
#include "runtime/launch/progress_bar.h"
#include "runtime/launch/signals.h"

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

// To the line's begin, and it is empty.
constexpr const char* kLineAgain = "\r\033[K";

struct Interrupted {};
using News = std::variant<Interrupted, ChildExit>;

class LocalRun {
 public:
  explicit LocalRun(const LocalRunOptions& options)
      : options_(options),
        job_{"local", options.job.metadata.name, RandomHex(8)},
        is_program_(!options.job.spec.training),
        token_(RandomHex(16)),
        service_(
            clock_,
            [this](const std::string& token, const auto&, const auto&, auto done) {
              token == token_ ? done({}) : done(Error{ErrorCode::kUnauthorized, "wrong token"});
            },
            [](const protocol::JobIdentity&) {}),
        workers_(static_cast<std::size_t>(options.job.spec.pod_count())) {}

  int Run() {
    if (const Result<void> ready = Prepare(); !ready.ok()) {
      std::cerr << "lockstep run: " << ready.error().message << "\n";
      return 1;
    }
    std::jthread ticker([this](std::stop_token stop) {
      while (!stop.stop_requested()) {
        service_.Tick();
        std::this_thread::sleep_for(20ms);
      }
    });
    SignalThread signals([this] { news_.Push(Interrupted{}); }, [this](ChildExit exit) { news_.Push(exit); });
    for (std::size_t slot = 0; slot < workers_.size(); ++slot) StartWorker(slot);
    while (!exit_code_.has_value() || AnyAlive()) {
      const SteadyTime wake = std::min(clock_.Steady() + 500ms, kill_at_);
      if (auto news = news_.PopUntil(wake, {})) std::visit([this](const auto& n) { Handle(n); }, *news);
      ShowProgress();
      if (clock_.Steady() >= kill_at_) EndAll(SIGKILL);
    }
    ShowEnd();
    return *exit_code_;
  }

 private:
  struct Worker {
    pid_t pid = 0;
    std::string uid;
  };

  Result<void> Prepare() {
    if (is_program_) SayWhatIsLeftOut();
    std::error_code error;
    std::filesystem::create_directories(options_.folder, error);
    if (error) return Error{ErrorCode::kInvalidArgument, options_.folder + ": " + error.message()};
    LOCKSTEP_TRY(server_, http::StartServer({}, [this](http::ServerRequest request, http::Responder respond) {
                   service_.Handle(std::move(request), std::move(respond));
                 }));
    rendezvous::JobSettings settings = api::RendezvousSettingsOf(options_.job.spec);
    settings.grow_delay = 0ms;  // on one machine nobody is waited for whom a scheduler still places
    service_.Configure(job_, settings);
    protocol::WorkerConfig config = api::WorkerConfigOf(options_.job);
    config.job = job_;
    config.rendezvous.url = "http://127.0.0.1:" + std::to_string(server_->port());
    config.metrics_port = 0;
    LOCKSTEP_TRY(WriteFile(Path("config.json"), WorkerConfigToJson(config).dump(2)));
    return WriteFile(Path("token"), token_);
  }

  void StartWorker(std::size_t slot) {
    Worker& worker = workers_[slot];
    const std::string name = api::PodName(job_.name, static_cast<int32_t>(slot));
    worker.uid = RandomHex(8);
    std::filesystem::remove(Path(name + ".end"));
    const auto set = [](const char* key, const std::string& value) { return std::string(key) + "=" + value; };
    namespace env = protocol::env;
    std::vector<std::string> environment = {set(env::kConfig, Path("config.json")),
                                            set(env::kTokenFile, Path("token")),
                                            set(env::kPodName, name),
                                            set(env::kPodUid, worker.uid),
                                            set(env::kPodIp, "127.0.0.1"),
                                            set(env::kNodeName, "local"),
                                            set(env::kSlot, std::to_string(slot)),
                                            set(env::kTerminationLog, Path(name + ".end"))};
    if (EnvOr("OMP_NUM_THREADS", "").empty()) environment.push_back(set("OMP_NUM_THREADS", ThreadsPerRank()));
    std::vector<std::string> arguments = {options_.program, "worker"};
    if (is_program_) AddProgram(environment, arguments);
    auto pid = StartProcess({.arguments = std::move(arguments),
                             .environment = std::move(environment),
                             .log_file = Path(name + ".log")});
    if (!pid.ok()) return Finish(1, "starting a worker: " + pid.error().message);
    worker.pid = *pid;
  }

  void SayWhatIsLeftOut() {
    for (const std::string& name : api::ProgramStartOf(options_.job.spec.worker, {}).left_out)
      Say(name + " is not set: its valueFrom needs a cluster");
  }

  // Of a program of the user's own. It runs in this machine's files, not in the container's image.
  void AddProgram(std::vector<std::string>& environment, std::vector<std::string>& arguments) const {
    api::Variables given;
    for (const std::string& entry : environment) {
      const std::size_t equals = entry.find('=');
      given[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    const api::ProgramStart start = api::ProgramStartOf(options_.job.spec.worker, std::move(given));
    for (const auto& [name, value] : start.environment) {
      const std::string prefix = name + "=";
      std::erase_if(environment, [&](const std::string& entry) { return entry.starts_with(prefix); });
      environment.push_back(prefix + value);
    }
    arguments.push_back("--");
    arguments.insert(arguments.end(), start.words.begin(), start.words.end());
  }

  // All workers share this machine. More threads than processors spin against each other: steps take many
  // times as long.
  [[nodiscard]] std::string ThreadsPerRank() const {
    const auto ranks = static_cast<unsigned>(workers_.size()) *
                       static_cast<unsigned>(std::max(1, api::WorkerConfigOf(options_.job).nproc));
    return std::to_string(std::max(1U, std::thread::hardware_concurrency() / ranks));
  }

  void Handle(const Interrupted&) {
    Finish(static_cast<int>(protocol::ExitCode::kPreempted), "interrupted: the workers save and stop");
  }

  void Handle(const ChildExit& exit) {
    for (std::size_t slot = 0; slot < workers_.size(); ++slot) {
      if (workers_[slot].pid == exit.pid) return OnWorkerEnd(slot, exit);
    }
  }

  void OnWorkerEnd(std::size_t slot, const ChildExit& exit) {
    Worker& worker = workers_[slot];
    worker.pid = 0;
    const std::string name = api::PodName(job_.name, static_cast<int32_t>(slot));
    const int meaning = protocol::MeaningOf(exit.exit_code, is_program_);
    service_.PodGone(job_, {.pod_uid = worker.uid,
                            .reason = "process ended with code " + std::to_string(exit.exit_code),
                            .cause = std::string(protocol::CauseOf(meaning)),
                            .exit_code = exit.exit_code,
                            .node = "local"});
    // One that comes to the end speaks for the others, by spec.successPolicy.
    if ((exit.signal == 0 && exit.exit_code == 0) || service_.View(job_).completed) {
      if (!AnyAlive()) Finish(0, "complete");
      return;
    }
    if (exit_code_.has_value()) return;
    const std::string reason = ReadFile(Path(name + ".end")).ok() ? *ReadFile(Path(name + ".end")) : "";
    if (exit.signal == 0 && protocol::IsPermanent(meaning)) return Finish(exit.exit_code, reason);
    Say(name + " ended (" +
        (exit.signal != 0 ? "signal " + std::to_string(exit.signal)
                          : "code " + std::to_string(exit.exit_code)) +
        ")" + (reason.empty() ? "" : ": " + reason.substr(0, reason.find('\n'))) + "; starting it again");
    const bool charged = exit.exit_code != static_cast<int>(protocol::ExitCode::kPreempted);
    if (charged && ++restarts_ > options_.job.spec.failure_policy.max_restarts) {
      return Finish(exit.exit_code, "failurePolicy.maxRestarts is used up: " + reason);
    }
    StartWorker(slot);
  }

  void Finish(int code, const std::string& reason) {
    if (exit_code_.has_value()) return;
    exit_code_ = code;
    end_reason_ = reason;
    kill_at_ = clock_.Steady() + std::chrono::seconds(code == 143 ? 60 : 10);
    EndAll(SIGTERM);
  }

  void EndAll(int signal) {
    for (const Worker& worker : workers_) KillProcess(worker.pid, signal);
  }

  [[nodiscard]] bool AnyAlive() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const Worker& worker) { return worker.pid != 0; });
  }

  void ShowProgress() {
    const rendezvous::RendezvousView view = service_.View(job_);
    if (!view.changes.empty() && view.changes.back().round != shown_change_) {
      shown_change_ = view.changes.back().round;
      Say("round " + std::to_string(shown_change_) + " ended: " + view.changes.back().reason);
    }
    if (view.world_size > 0 && view.round != shown_round_) {
      shown_round_ = view.round;
      Say("round " + std::to_string(view.round) + ": " + std::to_string(view.world_size) + " ranks");
    }
    if (std::exchange(shown_stragglers_, view.stragglers) != view.stragglers) {
      for (const rendezvous::SlowRank& slow : view.stragglers) Say(slow.ToString());
    }
    if (view.evaluation.step > shown_evaluation_) {
      shown_evaluation_ = view.evaluation.step;
      Say("step " + std::to_string(view.evaluation.step) + ": test accuracy " +
          FormatNumber(view.evaluation.accuracy) + ", loss " + FormatNumber(view.evaluation.loss));
    }
    if (view.checkpoint.step > shown_checkpoint_) {
      shown_checkpoint_ = view.checkpoint.step;
      Say("checkpoint of step " + std::to_string(view.checkpoint.step) + ": " + view.checkpoint.uri);
    }
    if (view.progress.step <= 0) return;
    if (is_terminal_) return DrawBar(view.progress);
    if (view.progress.step > shown_step_ && clock_.Steady() - last_line_ > 2s) {
      shown_step_ = view.progress.step;
      last_line_ = clock_.Steady();
      Say("step " + std::to_string(shown_step_) + "/" + std::to_string(view.progress.total_steps) +
          "  epoch " + FormatNumber(view.progress.epoch, 3) + "  loss " + FormatNumber(view.progress.loss) +
          "  " + FormatNumber(view.progress.samples_per_second) + " samples/s");
    }
  }

  void DrawBar(const protocol::Progress& progress) {
    winsize terminal{};
    const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.ws_col > 0;
    // The last column stays free: some terminals begin a new line as soon as it is written.
    const int columns = is_known ? terminal.ws_col - 1 : 79;
    std::cout << kLineAgain << bar_.Draw(progress, clock_.Steady(), columns) << std::flush;
    is_bar_drawn_ = true;
  }

  void ShowEnd() {
    ShowProgress();
    if (std::exchange(is_bar_drawn_, false)) std::cout << std::endl;  // it stays
    const double seconds = Seconds(clock_.Steady() - started_).count();
    if (*exit_code_ == 0) return Say("complete after " + FormatNumber(seconds, 3) + " s");
    std::cerr << "lockstep run: failed: " << end_reason_ << "\n  worker logs: " << Path("*.log") << "\n";
  }

  // The bar, which is drawn again soon, gives way.
  void Say(const std::string& text) {
    std::cout << (std::exchange(is_bar_drawn_, false) ? kLineAgain : "") << text << std::endl;
  }

  [[nodiscard]] std::string Path(const std::string& name) const { return options_.folder + "/" + name; }

  const LocalRunOptions& options_;
  const SystemClock clock_;
  const SteadyTime started_ = clock_.Steady();
  const protocol::JobIdentity job_;
  const bool is_program_;
  const std::string token_;
  rendezvous::RendezvousService service_;
  std::unique_ptr<http::HttpServer> server_;
  Queue<News> news_;
  std::vector<Worker> workers_;
  int restarts_ = 0;
  std::optional<int> exit_code_;
  std::string end_reason_;
  SteadyTime kill_at_ = SteadyTime::max();
  int64_t shown_change_ = 0;
  int64_t shown_round_ = 0;
  std::vector<rendezvous::SlowRank> shown_stragglers_;
  int64_t shown_evaluation_ = 0;
  int64_t shown_checkpoint_ = 0;
  int64_t shown_step_ = 0;
  SteadyTime last_line_{};
  const bool is_terminal_ = ::isatty(STDOUT_FILENO) == 1 && EnvOr("TERM", "dumb") != "dumb";
  ProgressBar bar_;
  bool is_bar_drawn_ = false;
};

}  // namespace

int RunLocally(const LocalRunOptions& options) { return LocalRun(options).Run(); }

}  // namespace lockstep::launch
