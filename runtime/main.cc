// lockstep-rank: one training process. Its supervisor (`lockstep worker`) starts it, sends it the round that it
// belongs to, and replaces it if it dies; see runtime/common/protocol/rank_control.h. Exit codes:
// runtime/common/protocol/exit_codes.h.

#include <ATen/Parallel.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <utility>

#include "runtime/comm/device_module.h"
#include "runtime/common/api/profile_window.h"
#include "runtime/common/api/validate_training.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/processors.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/common/protocol/worker_config.h"
#include "runtime/data/local_copy.h"
#include "runtime/models/precision.h"
#include "runtime/print_memory.h"
#include "runtime/train/loop/collective_limit.h"
#include "runtime/train/loop/elastic_loop.h"
#include "runtime/train/loop/exit_code_of.h"
#include "runtime/train/loop/warm_up.h"
#include "runtime/train/make_training_state.h"
#include "runtime/train/records/flight_log.h"
#include "runtime/train/records/stack_writer.h"
#include "runtime/train/step/windows.h"

namespace lockstep {
namespace {

namespace env = protocol::env;
using protocol::ExitCode;
using train::LoopOutcome;

LoopOutcome Fail(ExitCode code, const Error& error) { return {code, error.message}; }

LoopOutcome FailToStart(const Error& error, bool is_on_device) {
  return Fail(train::ExitCodeOfStart(error, is_on_device), error);
}

struct Settings {
  protocol::WorkerConfig worker;
  api::TrainingSpec training;
  std::optional<api::CheckpointSpec> checkpoint;
  train::ProfileSettings profile;
};

// Where the trace goes: beside the checkpoints, else to the logs of `lockstep run`.
Result<train::ProfileSettings> ReadProfileSettings(const std::optional<api::CheckpointSpec>& checkpoint) {
  LOCKSTEP_TRY(const auto window, api::ParseProfileWindow(EnvOr(env::kProfile, "")));
  if (checkpoint.has_value()) return train::ProfileSettings{checkpoint->uri, window};
  const std::string folder = EnvOr(env::kRunFolder, "");
  if (!folder.empty())
    return train::ProfileSettings{"file://" + std::filesystem::absolute(folder).string(), window};
  if (window.has_value())
    log::Warning("no profile: LOCKSTEP_PROFILE needs spec.checkpoint, beside which a pod stores it");
  return train::ProfileSettings{};
}

Result<Settings> ReadSettings() {
  Settings settings;
  LOCKSTEP_TRY(settings.worker, protocol::ReadWorkerConfig(EnvOr(env::kConfig, "/etc/lockstep/config.json")));
  std::vector<std::string> violations;
  settings.training = api::TrainingSpecFromJson(settings.worker.training, "spec.training", violations);
  if (violations.empty()) violations = api::ValidateTraining(settings.training, "spec.training");
  if (!settings.worker.checkpoint.empty()) {
    settings.checkpoint =
        api::CheckpointSpecFromJson(settings.worker.checkpoint, "spec.checkpoint", violations);
  }
  if (!violations.empty()) return Error{ErrorCode::kInvalidArgument, Join(violations, "; ")};
  LOCKSTEP_TRY(settings.profile, ReadProfileSettings(settings.checkpoint));
  return settings;
}

// No destructors of global objects: LibTorch's threads may be inside a connect that nobody waits for any
// more.
[[noreturn]] void ExitNow(ExitCode code) {
  std::fflush(nullptr);
  std::_Exit(static_cast<int>(code));
}

void Report(protocol::ControlLink& link, const LoopOutcome& failure) {
  log::Error("rank failed", {{"exit_code", static_cast<int>(failure.code)}, {"reason", failure.reason}});
  link.Send(protocol::Failed{static_cast<int>(failure.code), failure.reason, failure.failed_step});
}

// Absent: the CPU. A pod with GPUs does not leave them idle without a word.
std::unique_ptr<comm::DeviceBackend> OpenGpu(const Settings& settings) {
  const protocol::WorkerConfig& worker = settings.worker;
  if (worker.requested_gpus == 0) return nullptr;
  Result<std::unique_ptr<comm::DeviceBackend>> device =
      Error{ErrorCode::kInvalidArgument, "spec.training.determinism: World is computed on the CPU"};
  if (settings.training.determinism != api::Determinism::kWorld) {
    const int local_rank = std::atoi(EnvOr(env::kLocalRank, "0").c_str());
    device = comm::OpenDevice(comm::DefaultDeviceModule(), local_rank, worker.nproc);
  }
  if (!device.ok()) {
    log::Warning("training on the CPU, though the job asks for GPUs",
                 {{"requested_gpus", worker.requested_gpus}, {"reason", device.error().message}});
    return nullptr;
  }
  log::Info("training on a device", {{"device", (*device)->device_id()}});
  models::AllowTf32(settings.training.tf32);
  return std::move(*device);
}

// Of the model and what is beside it, the one of the state first.
std::vector<at::Device> DevicesOf(const Settings& settings, const comm::DeviceBackend* gpu) {
  const api::Strategy strategy = settings.training.strategy;
  const bool takes_all = api::TakesAllDevices(strategy);
  const std::string name(api::NameOf(strategy));
  std::vector<at::Device> devices = {gpu == nullptr ? at::Device(at::kCPU) : gpu->device()};
  if (takes_all && gpu != nullptr) devices = gpu->devices();
  if (takes_all && devices.size() == 1) {
    log::Warning(name + " finds one device only: training on it as one process does",
                 {{"device", devices.front().str()}});
  } else if (takes_all) {
    log::Info(strategy == api::Strategy::kDataparallel
                  ? "dataparallel: each batch is scattered over the devices"
                  : "modelparallel: the layers of the model are placed on the devices",
              {{"devices", devices.size()}});
  }
  return devices;
}

// Of a store that answers, but is slow.
constexpr Seconds kSilenceOfATransfer(300);

// A download may take hours: to wait for it is no hang, before the first step as in any later one.
data::CopyOptions CopyingFor(Seconds patience, protocol::ControlLink& link, train::RoundControl& control) {
  const auto store_is_away = [&link](const std::optional<Error>& error) {
    link.Send(error ? protocol::StoreUnavailable{"training data", error->message}
                    : protocol::StoreUnavailable{});
  };
  return {.fetch = {.retries = {.is_stopped = [&control] { return control.stop_requested(); },
                                .pause = [&control](Milliseconds time) { control.Pause(time); },
                                .patience = patience,
                                .store_is_away = store_is_away}},
          .alive = [&link] { link.Send(protocol::PhaseChanged{protocol::RankPhase::kLoad}); },
          .longest_silence = patience + kSilenceOfATransfer};
}

LoopOutcome FailToLoad(const Error& error) {
  if (error.code == ErrorCode::kCancelled) return {ExitCode::kPreempted, ""};
  // The others may train on meanwhile: a store that is away for a while must not end their job.
  if (error.IsTransient() || error.code == ErrorCode::kAborted) return Fail(ExitCode::kInfrastructure, error);
  return Fail(train::ExitCodeOf(error), error);
}

bool IsOfTheData(const Error& error) {
  return error.code == ErrorCode::kAborted || error.code == ErrorCode::kCancelled ||
         error.code == ErrorCode::kUnauthorized || error.code == ErrorCode::kForbidden ||
         error.code == ErrorCode::kConflict;
}

LoopOutcome Train(const Settings& settings, protocol::ControlLink& link, train::RoundControl& control,
                  const Clock& clock) {
  // As long as the process: connects that were given up may use it still.
  static const std::unique_ptr<comm::DeviceBackend> gpu = OpenGpu(settings);
  static train::FlightLog flights(settings.profile.uri);
  const comm::DeviceUse device{
      .backend = gpu.get(),
      // A rank that hangs in the device's library can only be replaced by another process.
      .give_up =
          [&link](const std::string& reason) {
            Report(link, Fail(ExitCode::kInfrastructure, {ErrorCode::kDeviceFault, reason}));
            ExitNow(ExitCode::kInfrastructure);
          },
      .keep_trace = [](comm::BrokenTrace trace) { flights.Keep(std::move(trace)); }};
  if (settings.training.cuda_graph && gpu == nullptr) log::Info("no CUDA graph: training on the CPU");
  link.Send(protocol::PhaseChanged{protocol::RankPhase::kLoad});
  // As long as the process: what is under way between the store and the copy is not waited for at the end.
  static const auto datasets = data::OpenDatasets(
      settings.training, CopyingFor(Seconds(settings.worker.store_patience_seconds), link, control));
  if (!datasets.ok()) return FailToLoad(datasets.error());
  const auto samples = data::TrainingSamples::Make(settings.training, *datasets->train);
  if (!samples.ok()) return Fail(ExitCode::kBadConfiguration, samples.error());
  auto state = train::MakeTrainingState(settings.training,
                                        {datasets->train->sample_shape(), datasets->train->classes()},
                                        DevicesOf(settings, gpu.get()), settings.worker.nproc);
  if (!state.ok()) return FailToStart(state.error(), gpu != nullptr);
  const auto warm = train::WarmUp(settings.training, *datasets->train, **state);
  if (!warm.ok()) {
    // It reads the first samples.
    return IsOfTheData(warm.error()) ? FailToLoad(warm.error()) : FailToStart(warm.error(), gpu != nullptr);
  }
  std::unique_ptr<checkpoint::Checkpointer> checkpointer;
  if (settings.checkpoint.has_value()) {
    auto opened =
        checkpoint::Checkpointer::Open(*settings.checkpoint, settings.worker.job, settings.worker.training);
    if (!opened.ok())
      return Fail(opened.error().IsTransient() ? ExitCode::kInfrastructure : ExitCode::kStore,
                  opened.error());
    checkpointer = std::move(opened).value();
  }
  const api::CheckpointSpec checkpoint = settings.checkpoint.value_or(api::CheckpointSpec{});
  return train::RunElasticLoop({.training = settings.training,
                                .checkpoint = checkpoint,
                                .listen_address = EnvOr(env::kPodIp, ""),
                                .ledger_folder = EnvOr(env::kSampleLedger, ""),
                                .process_name = EnvOr(env::kPodName, std::to_string(::getpid())),
                                .log_all_ranks = settings.worker.log_all_ranks,
                                .profile = settings.profile,
                                .samples = *samples,
                                .test = *datasets->test,
                                .state = **state,
                                .device = device,
                                .checkpointer = checkpointer.get(),
                                .store_patience = Seconds(settings.worker.store_patience_seconds),
                                .collective_limit = train::CollectiveLimit(
                                    settings.worker.health, train::StepsOfAWindow(settings.training)),
                                .link = link,
                                .control = control,
                                .clock = clock});
}

LoopOutcome Run(protocol::ControlLink& link, train::RoundControl& control, const Clock& clock) {
  link.Send(protocol::PhaseChanged{protocol::RankPhase::kInit});
  const Result<Settings> settings = ReadSettings();
  if (!settings.ok()) return Fail(ExitCode::kBadConfiguration, settings.error());
  const protocol::WorkerConfig& worker = settings->worker;
  log::Bind({{"job", worker.job.name},
             {"pod", EnvOr(env::kPodName, "")},
             {"local_rank", EnvOr(env::kLocalRank, "0")}});
  // Of the whole run, one is enough.
  if (EnvOr(env::kSlot, "") == "0" && EnvOr(env::kLocalRank, "0") == "0")
    log::Info("configuration",
              {{"training", worker.training.dump()}, {"checkpoint", worker.checkpoint.dump()}});
  if (settings->training.determinism == api::Determinism::kWorld) {
    // Kernels add in another order with another number of threads, which must not follow from where a rank
    // runs.
    at::set_num_threads(1);
  } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
    // Where several pods run on one machine, OMP_NUM_THREADS says how many each may use.
    at::set_num_threads(ThreadsPerRank(ProcessorsGiven(worker.requested_processors), worker.nproc));
  }
  at::set_num_interop_threads(1);
  // Or the profiler writes to the log that there is no GPU, as an error. Here and not where a profile begins:
  // no other thread reads variables yet.
  if (worker.requested_gpus == 0) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  return Train(*settings, link, control, clock);
}

// Each step needs the memory of the one before. Given back to the kernel in between, every page of it would
// be cleared again: a tenth of the time of a step on CPUs.
void KeepMemory() {
  constexpr int kLargestKept = 32 << 20;  // glibc's highest
  ::mallopt(M_MMAP_THRESHOLD, kLargestKept);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

int MainOfPrintMemory(const std::vector<std::string>& arguments) {
  const Result<Settings> settings = ReadSettings();
  if (settings.ok()) {
    const protocol::WorkerConfig& worker = settings->worker;
    const train::PodShape pod = {.ranks = worker.nproc, .devices = std::max(1, worker.requested_gpus)};
    return PrintMemory(settings->training, pod, arguments);
  }
  std::fprintf(stderr, "lockstep memory: %s\n", settings.error().message.c_str());
  return static_cast<int>(ExitCode::kBadConfiguration);
}

int Main() {
  // A terminal's or a pod's signals are the supervisor's to judge: it says Stop, or closes the socket.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_IGN);
  const char* fd = std::getenv(env::kControlFd);
  if (fd == nullptr) {
    std::fprintf(stderr, "lockstep-rank is started by `lockstep worker`: %s is not set\n", env::kControlFd);
    return static_cast<int>(ExitCode::kBadConfiguration);
  }
  KeepMemory();
  const SystemClock clock;
  train::RoundControl control(clock);
  protocol::ControlLink link{Fd(std::atoi(fd))};
  train::WriteStackOnSignal();
  link.Start({.on_message =
                  [&](const protocol::ToRank& message) {
                    control.OnMessage(message);
                    if (std::holds_alternative<protocol::Ping>(message))
                      link.Send(protocol::Pong{control.waits_for_peers()});
                  },
              .on_end = [] { ExitNow(ExitCode::kInfrastructure); }});
  const LoopOutcome outcome = Run(link, control, clock);
  if (!outcome.reason.empty()) Report(link, outcome);
  ExitNow(outcome.code);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::log::SetLevel(lockstep::EnvOr(lockstep::protocol::env::kLogLevel, "info"));
  const std::vector<std::string> words(argv, argv + argc);
  if (argc > 3 && words[1] == lockstep::kPrintMemory)
    return lockstep::MainOfPrintMemory({words.begin() + 2, words.end()});
  return lockstep::Main();
}
