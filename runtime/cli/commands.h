#pragma once
// The verbs of `lockstep`, one file each. Each returns the process's exit code and prints for people.

#include <optional>
#include <string>
#include <vector>

namespace lockstep::cli {

// PID 1 of a worker pod: everything comes from the environment (protocol/environment.h), but for the command
// of a program of the user's own. `own_command` starts this program again.
struct WorkerArguments {
  std::vector<std::string> own_command;
  std::vector<std::string> program;  // empty: the ranks are lockstep-rank
};
[[nodiscard]] int Worker(const WorkerArguments& arguments);

// A rank of such a pod.
[[nodiscard]] int Program(const std::vector<std::string>& command);

// This program with its libraries, for a pod whose image knows nothing of it.
[[nodiscard]] int CopyTo(const std::string& folder);

struct RunArguments {
  std::string manifest;              // or …
  std::vector<std::string> command;  // … a program of the user's own, `nproc` times in each worker
  std::optional<int> nproc;
  std::optional<int> replicas;
  std::string folder;          // default: run/<job name>
  std::string checkpoint_uri;  // default: the manifest's if it is file://, else <folder>/checkpoints
  bool no_prefix = false;
};
[[nodiscard]] int Run(const RunArguments& arguments);

// Every job of these files, "-" being standard input. 1 where one of them is not valid.
[[nodiscard]] int Validate(const std::vector<std::string>& files);

struct ConvertArguments {
  std::string manifest;  // of PyTorchJobs; "-": standard input
  bool force = false;    // write also what does not do the same
};
[[nodiscard]] int Convert(const ConvertArguments& arguments);

// What spec.training.model can name.
[[nodiscard]] int Models();

// `lockstep checkpoint …` is a program of its own, with Arrow (runtime/checkpoint_tool), which this process
// becomes. `arguments`: main's, from the verb on. Returns where there is no such program.
[[nodiscard]] int BecomeCheckpointTool(char** arguments);

struct PlotArguments {
  std::string history;  // the file, or the folder of checkpoints that it lies in
  std::string output = "history.svg";
};
[[nodiscard]] int Plot(const PlotArguments& arguments);

}  // namespace lockstep::cli
