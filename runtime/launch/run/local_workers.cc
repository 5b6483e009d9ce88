#include "runtime/launch/run/local_workers.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "runtime/common/api/names.h"
#include "runtime/common/api/program_of.h"
#include "runtime/common/base/file.h"
#include "runtime/common/base/strings.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/run/machines.h"

namespace lockstep::launch {

namespace env = protocol::env;

LocalWorkers::LocalWorkers(LocalWorkersOptions options)
    : options_(std::move(options)), workers_(static_cast<std::size_t>(options_.count)) {}

Result<void> LocalWorkers::Prepare(const protocol::WorkerConfig& config, const std::string& token) {
  const std::filesystem::path secret = std::filesystem::path(TokenFile()).parent_path();
  std::error_code error;
  std::filesystem::create_directories(secret, error);
  // Other users may have access to the parent folder.
  if (!error) std::filesystem::permissions(secret, std::filesystem::perms::owner_all, error);
  if (error) return Error{ErrorCode::kInvalidArgument, options_.folder + ": " + error.message()};
  nproc_ = config.nproc;
  LOCKSTEP_TRY(WriteFile(Path("config.json"), WorkerConfigToJson(config).dump(2)));
  return WriteFile(TokenFile(), token);
}

Result<void> LocalWorkers::Start(int slot) {
  Worker& worker = workers_.at(static_cast<std::size_t>(slot - options_.first_slot));
  const std::string name = NameOf(slot);
  worker.uid = RandomHex(8);
  std::filesystem::remove(Path(name + ".end"));
  const auto set = [](const char* key, const std::string& value) { return std::string(key) + "=" + value; };
  std::vector<std::string> environment = {set(env::kConfig, Path("config.json")),
                                          set(env::kTokenFile, TokenFile()),
                                          set(kTokenVariable, ""),  // a user's program does not need it
                                          set(env::kPodName, name),
                                          set(env::kPodUid, worker.uid),
                                          set(env::kPodIp, options_.address),
                                          set(env::kNodeName, options_.node),
                                          set(env::kSlot, std::to_string(slot)),
                                          set(env::kTerminationLog, Path(name + ".end")),
                                          set(env::kRunFolder, options_.folder)};
  Fd output;
  if (!options_.job.spec.training) {
    LOCKSTEP_TRY(output, ShowOutputOf(worker));
  }
  environment.push_back(set(env::kOutputFd, output.valid() ? std::to_string(output.get()) : ""));
  if (EnvOr("OMP_NUM_THREADS", "").empty()) environment.push_back(set("OMP_NUM_THREADS", ThreadsPerRank()));
  std::vector<std::string> arguments = {options_.program, "worker"};
  if (!options_.job.spec.training) AddProgram(environment, arguments);
  const auto pid = StartProcess({.arguments = std::move(arguments),
                                 .environment = std::move(environment),
                                 .inherited_fd = output.get(),
                                 .log_file = Path(name + ".log")});
  if (!pid.ok()) return pid.error().WithContext("starting a worker");
  worker.pid = *pid;
  return {};
}

Result<Fd> LocalWorkers::ShowOutputOf(Worker& worker) const {
  LOCKSTEP_TRY(Pipe pipe, MakePipe());
  const bool has_several = options_.job.spec.worker.replicas * nproc_ > 1;
  worker.output =
      std::make_unique<ProgramOutputPrinter>(std::move(pipe.reading), has_several && options_.prefix_ranks);
  return std::move(pipe.writing);
}

void LocalWorkers::SignalAll(int signal) {
  for (const Worker& worker : workers_) KillProcess(worker.pid, signal);
}

bool LocalWorkers::AnyAlive() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.pid != 0; });
}

std::optional<LocalWorkers::Ended> LocalWorkers::TakeEnd(const ChildExit& exit) {
  const auto found = std::find_if(workers_.begin(), workers_.end(),
                                  [&](const Worker& worker) { return worker.pid == exit.pid; });
  if (found == workers_.end()) return std::nullopt;
  found->pid = 0;
  found->output.reset();  // shows its last lines before the consequences of its end
  const int slot = options_.first_slot + static_cast<int>(found - workers_.begin());
  const Result<std::string> reason = ReadFile(Path(NameOf(slot) + ".end"));
  return Ended{
      slot, found->uid, {exit.exit_code, exit.signal, exit.exit_code != 0 && reason.ok() ? *reason : ""}};
}

std::string LocalWorkers::NameOf(int slot) const { return api::PodName(options_.job.metadata.name, slot); }

std::vector<std::string> LocalWorkers::LeftOut() const {
  if (options_.job.spec.training) return {};
  return api::ProgramStartOf(options_.job.spec.worker, {}).left_out;
}

// Arguments for a user's program. It runs with this machine's files, not in the container's image.
void LocalWorkers::AddProgram(std::vector<std::string>& environment,
                              std::vector<std::string>& arguments) const {
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

// All workers share this machine. With more threads than processors, threads spin against each other, and
// steps take many times as long.
std::string LocalWorkers::ThreadsPerRank() const {
  const auto ranks = static_cast<unsigned>(workers_.size()) * static_cast<unsigned>(std::max(1, nproc_));
  return std::to_string(std::max(1U, std::thread::hardware_concurrency() / ranks));
}

}  // namespace lockstep::launch
