#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "runtime/common/base/file.h"
#include "runtime/common/command_line/usage.h"
#include "runtime/common/protocol/environment.h"
#include "runtime/launch/process/process.h"
#include "runtime/launch/run/machine_config.h"
#include "runtime/tools/cli/commands.h"
#include "runtime/tools/cli/manifest_file.h"

namespace lockstep::cli {
namespace {

namespace env = protocol::env;

// A file without a name, which the next program inherits.
Result<std::string> Keep(const std::string& text) {
  const int file = ::memfd_create("lockstep-config", 0);
  const auto written = file < 0 ? -1 : ::write(file, text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size()))
    return Error{ErrorCode::kInternal, std::string("keeping the configuration: ") + std::strerror(errno)};
  return "/proc/self/fd/" + std::to_string(file);
}

}  // namespace

// lockstep-rank has the models, so it replaces this process.
int Memory(const MemoryArguments& arguments) {
  const LoadedManifest loaded = LoadManifest(arguments.manifest);
  std::vector<std::string> problems = loaded.problems;
  if (problems.empty() && !loaded.job.spec.training)
    problems = {"spec.training: is required: Lockstep does not know the model of a program of your own"};
  for (const std::string& problem : problems) std::cerr << arguments.manifest << ": " << problem << "\n";
  if (!problems.empty()) return command_line::kUsageError;

  const protocol::WorkerConfig config = launch::WorkerConfigOn({}, loaded.job);
  const Result<std::string> file = Keep(WorkerConfigToJson(config).dump());
  if (!file.ok()) {
    std::cerr << "lockstep memory: " << file.error().message << "\n";
    return 1;
  }
  ::setenv(env::kConfig, file->c_str(), /*overwrite=*/1);
  std::vector<std::string> words = {EnvOr(env::kRankProgram, launch::ProgramFolder() + "/lockstep-rank"),
                                    "memory", arguments.as_json ? "json" : "text"};
  for (const int replicas : arguments.replicas) words.push_back(std::to_string(replicas * config.nproc));
  std::vector<char*> line;
  line.reserve(words.size() + 1);
  for (std::string& word : words) line.push_back(word.data());
  line.push_back(nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);  // it would inherit the blocked ones
  ::execv(line.front(), line.data());
  std::cerr << "lockstep memory: " << words.front() << ": " << std::strerror(errno)
            << "; it is in the folder of `lockstep` in the worker's image and in a build\n";
  return 1;
}

}  // namespace lockstep::cli
