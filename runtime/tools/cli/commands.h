#pragma once
// The verbs of `lockstep`, one file each. Each returns the process's exit code and prints for people.

#include <optional>
#include <string>
#include <vector>

#include "runtime/launch/run/machines.h"

namespace lockstep::cli {

// PID 1 of a worker pod. Everything except the command of a program of the user's own comes from the
// environment (protocol/environment.h). `own_command` starts this program again.
struct WorkerArguments {
  std::vector<std::string> own_command;
  std::vector<std::string> program;  // empty: the ranks are lockstep-rank
};
[[nodiscard]] int Worker(const WorkerArguments& arguments);

// One rank of such a pod.
[[nodiscard]] int Program(const std::vector<std::string>& command);

// Copies this program with its libraries into a folder, for a pod whose image does not contain it.
[[nodiscard]] int CopyTo(const std::string& folder);

struct RunArguments {
  std::string manifest;              // or …
  std::vector<std::string> command;  // … a program of the user's own, `nproc` processes in each worker
  std::optional<int> nproc;
  std::optional<int> max_restarts;  // of the command's processes, in place
  launch::Environment machines;     // from torchrun's flags; added to the environment
  std::optional<int> replicas;
  std::string folder;          // default: run/<job name>
  std::string checkpoint_uri;  // default: the manifest's if it is file://, else <folder>/checkpoints
  bool no_prefix = false;
};
[[nodiscard]] int Run(const RunArguments& arguments);

struct ScalingArguments {
  std::string manifest;
  std::vector<int> replicas;  // to measure, smallest first
  int steps = 30;
  bool as_json = false;
};
// Measures how fast a job trains on this machine with each number of replicas, and recommends one.
[[nodiscard]] int Scaling(const ScalingArguments& arguments);

struct MemoryArguments {
  std::string manifest;
  std::vector<int> replicas;  // smallest first
  bool as_json = false;
};
// Prints which memory a rank needs for the state of the training, with each number of replicas and each
// strategy. Becomes lockstep-rank; returns only if that fails.
[[nodiscard]] int Memory(const MemoryArguments& arguments);

// Validates every job of these files; "-" is standard input. Exit code 1 if one of them is invalid.
[[nodiscard]] int Validate(const std::vector<std::string>& files);

struct ConvertArguments {
  std::string manifest;  // of PyTorchJobs; "-": standard input
  bool force = false;    // also write jobs that would behave differently
};
[[nodiscard]] int Convert(const ConvertArguments& arguments);

// Lists the values of spec.training.model.
[[nodiscard]] int Models();

// Replaces this process by the program for `lockstep checkpoint …`, which is separate because it links Arrow
// (runtime/tools/checkpoint_tool). `arguments`: main's, from the verb on. Returns only if there is no such
// program.
[[nodiscard]] int BecomeCheckpointTool(char** arguments);

struct PlotArguments {
  std::string history;  // the file, or its folder of checkpoints
  std::string output = "history.svg";
};
[[nodiscard]] int Plot(const PlotArguments& arguments);

}  // namespace lockstep::cli
