#include <filesystem>
#include <iostream>

#include "runtime/common/api/validate.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/run/joined_run.h"
#include "runtime/launch/run/local_run.h"
#include "runtime/launch/run/machines.h"
#include "runtime/launch/run/run_options.h"
#include "runtime/tools/cli/command_job.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::cli {
namespace {

// Without a cluster there is no Secret, and often no object store: checkpoints go to local disk unless the
// manifest or the user names a folder. Several machines need a place that all of them reach.
void PlaceCheckpoints(api::TrainingJob& job, const RunArguments& arguments, const std::string& folder,
                      bool is_one_of_several) {
  if (!job.spec.checkpoint) {
    if (!arguments.checkpoint_uri.empty()) job.spec.checkpoint.emplace().uri = arguments.checkpoint_uri;
    return;
  }
  api::CheckpointSpec& checkpoint = *job.spec.checkpoint;
  checkpoint.secret_ref.reset();
  if (!arguments.checkpoint_uri.empty()) {
    checkpoint.uri = arguments.checkpoint_uri;
  } else if (!checkpoint.uri.starts_with("file://") && !is_one_of_several) {
    const std::string local = "file://" + folder + "/checkpoints";
    std::cout << "checkpoints go to " << local << " instead of " << checkpoint.uri
              << " (choose with --checkpoint-uri)\n";
    checkpoint.uri = local;
  }
}

// Each machine is a replica. On a single machine --replicas may ask for more.
void TakeMachines(const launch::Machines& machines, const RunArguments& arguments, LoadedManifest& loaded) {
  if (machines.count > 1 && arguments.replicas) {
    loaded.problems.emplace_back("--replicas is for one machine; " + machines.launcher + " named " +
                                 std::to_string(machines.count) + ", and each is a replica");
  }
  if (!loaded.problems.empty() || arguments.replicas) return;
  api::TrainingJobSpec& spec = loaded.job.spec;
  spec.worker.replicas = machines.count - spec.standby_replicas;
  if (spec.worker.replicas < 1) {
    loaded.problems.emplace_back("spec.standbyReplicas: " + std::to_string(spec.standby_replicas) + " of " +
                                 std::to_string(machines.count) + " machines would leave none to train");
  } else {
    loaded.problems = api::Validate(loaded.job);
    for (std::string& problem : loaded.problems) {
      problem += " (each of " + std::to_string(machines.count) + " machines is a replica, says " +
                 machines.launcher + ")";
    }
  }
}

// Credentials for remote data come from the shell. Downloaded files are kept for the next run.
void KeepCopiesLocal(api::TrainingJob& job, const std::string& folder) {
  if (!job.spec.training || !api::IsRemote(job.spec.training->data)) return;
  api::DataSpec& data = job.spec.training->data;
  data.secret_ref.reset();
  if (data.cache.empty()) data.cache = folder + "/data";
}

// The manifest's job, or one made for the command.
LoadedManifest LoadJob(const RunArguments& arguments) {
  if (arguments.command.empty()) return LoadManifest(arguments.manifest);
  LoadedManifest loaded = CheckManifest(JobOfCommand(arguments.command, arguments.nproc.value_or(1)));
  if (arguments.max_restarts) {
    loaded.job.spec.failure_policy.in_place_limit = *arguments.max_restarts;
    loaded.job.spec.failure_policy.max_restarts = 0;
  }
  return loaded;
}

// Flags that contradict each other; empty: none.
std::string Contradiction(const RunArguments& arguments) {
  if (arguments.manifest.empty() && arguments.command.empty())
    return "FILE is required: a manifest or a script; or `-- COMMAND`";
  if (!arguments.manifest.empty() && !arguments.command.empty())
    return "FILE and `-- COMMAND` exclude each other: a manifest names its own command";
  if (!arguments.manifest.empty() && arguments.nproc)
    return "--nproc needs `-- COMMAND`: a manifest has spec.nprocPerNode";
  if (!arguments.manifest.empty() && arguments.max_restarts)
    return "--max-restarts needs `-- COMMAND`: a manifest has spec.failurePolicy";
  return "";
}

}  // namespace

int Run(const RunArguments& arguments) {
  if (const std::string wrong = Contradiction(arguments); !wrong.empty()) {
    std::cerr << "lockstep run: " << wrong << "\nRun `lockstep run --help` for usage.\n";
    return command_line::kUsageError;
  }
  LoadedManifest loaded = LoadJob(arguments);
  launch::Environment environment = arguments.machines;
  environment.merge(launch::OwnEnvironment());
  const auto machines = launch::MachinesFrom(environment);
  if (!machines.ok()) {
    std::cerr << "lockstep run: " << machines.error().message << "\n";
    return command_line::kUsageError;
  }
  const launch::Machines here = machines->value_or(launch::Machines{});
  if (machines->has_value()) TakeMachines(here, arguments, loaded);
  if (arguments.replicas && loaded.problems.empty()) {
    loaded.job.spec.worker.replicas = *arguments.replicas;
    loaded.problems = api::Validate(loaded.job);
  }
  if (!loaded.job.spec.training && !arguments.checkpoint_uri.empty()) {
    loaded.problems.emplace_back("--checkpoint-uri needs spec.training: a program saves by itself");
  }
  for (const std::string& problem : loaded.problems)
    std::cerr << (arguments.manifest.empty() ? "lockstep run" : arguments.manifest) << ": " << problem
              << "\n";
  if (!loaded.problems.empty()) return command_line::kUsageError;
  const std::string name = loaded.job.metadata.name;
  std::string folder =
      std::filesystem::absolute(arguments.folder.empty() ? "run/" + name : arguments.folder).string();
  PlaceCheckpoints(loaded.job, arguments, folder, here.count > 1);
  // Machines may share the folder.
  if (here.count > 1) folder += "/machine-" + std::to_string(here.index);
  KeepCopiesLocal(loaded.job, folder);
  const launch::RunOptions options{.job = loaded.job,
                                   .folder = folder,
                                   .program = launch::ProgramFolder() + "/lockstep",
                                   .machines = here,
                                   .prefix_ranks = !arguments.no_prefix};
  return here.index == 0 ? launch::RunLocally(options) : launch::RunJoined(options);
}

}  // namespace lockstep::cli
