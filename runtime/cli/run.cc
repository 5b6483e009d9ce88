#include <filesystem>
#include <iostream>

#include "runtime/cli/commands.h"
#include "runtime/cli/manifest_file.h"
#include "runtime/common/api/validate.h"
#include "runtime/launch/local_run.h"
#include "runtime/launch/process.h"

namespace lockstep::cli {
namespace {

// On one machine there is no secret and often no object store: checkpoints go to local disk unless the
// manifest or the user names a folder.
void KeepCheckpointsLocal(api::TrainingJob& job, const RunArguments& arguments, const std::string& folder) {
  if (!job.spec.checkpoint) {
    if (!arguments.checkpoint_uri.empty()) job.spec.checkpoint.emplace().uri = arguments.checkpoint_uri;
    return;
  }
  api::CheckpointSpec& checkpoint = *job.spec.checkpoint;
  checkpoint.secret_ref.reset();
  if (!arguments.checkpoint_uri.empty()) {
    checkpoint.uri = arguments.checkpoint_uri;
  } else if (!checkpoint.uri.starts_with("file://")) {
    const std::string local = "file://" + folder + "/checkpoints";
    std::cout << "checkpoints go to " << local << " instead of " << checkpoint.uri
              << " (choose with --checkpoint-uri)\n";
    checkpoint.uri = local;
  }
}

}  // namespace

int Run(const RunArguments& arguments) {
  LoadedManifest loaded = LoadManifest(arguments.manifest);
  if (arguments.replicas && loaded.problems.empty()) {
    loaded.job.spec.worker.replicas = *arguments.replicas;
    loaded.problems = api::Validate(loaded.job);
  }
  if (!loaded.job.spec.training && !arguments.checkpoint_uri.empty()) {
    loaded.problems.emplace_back("--checkpoint-uri needs spec.training: a program saves by itself");
  }
  for (const std::string& problem : loaded.problems)
    std::cerr << arguments.manifest << ": " << problem << "\n";
  if (!loaded.problems.empty()) return 2;
  const std::string name = loaded.job.metadata.name;
  const std::string folder =
      std::filesystem::absolute(arguments.folder.empty() ? "run/" + name : arguments.folder).string();
  KeepCheckpointsLocal(loaded.job, arguments, folder);
  return launch::RunLocally(
      {.job = loaded.job, .folder = folder, .program = launch::ProgramFolder() + "/lockstep"});
}

}  // namespace lockstep::cli
