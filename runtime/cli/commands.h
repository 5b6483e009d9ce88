#pragma once
// The verbs of `lockstep`, one file each. Each returns the process's exit code and prints for people.

#include <optional>
#include <string>

namespace lockstep::cli {

// PID 1 of a worker pod: everything comes from the environment (protocol/environment.h).
[[nodiscard]] int Worker();

struct RunArguments {
  std::string manifest;
  std::optional<int> replicas;
  std::string folder;          // default: run/<job name>
  std::string checkpoint_uri;  // default: the manifest's if it is file://, else <folder>/checkpoints
};
[[nodiscard]] int Run(const RunArguments& arguments);

[[nodiscard]] int Validate(const std::string& manifest);

}  // namespace lockstep::cli
