#pragma once
// The verbs of `kubectl lockstep`. Each prints for people and returns the exit code; an error is one line,
// which main prints.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/tools/kubectl_plugin/kubectl.h"

namespace lockstep::kubectl_plugin {

struct StatusArguments {
  std::string job;  // empty: a table of all jobs
  bool watch = false;
  bool all_namespaces = false;
  bool as_json = false;
};
[[nodiscard]] Result<int> Status(const Kubectl& kubectl, const StatusArguments& arguments);

struct SubmitArguments {
  std::vector<std::string> files;  // "-": standard input
  bool wait = false;
};
[[nodiscard]] Result<int> Submit(const Kubectl& kubectl, const SubmitArguments& arguments);

[[nodiscard]] Result<int> Events(const Kubectl& kubectl, const std::string& job);

struct LogsArguments {
  std::string job;
  int64_t rank = 0;
  bool all = false;
  bool follow = false;
  bool previous = false;
};
[[nodiscard]] Result<int> Logs(const Kubectl& kubectl, const LogsArguments& arguments);

[[nodiscard]] Result<int> Suspend(const Kubectl& kubectl, const std::string& job);
[[nodiscard]] Result<int> Resume(const Kubectl& kubectl, const std::string& job);
[[nodiscard]] Result<int> Scale(const Kubectl& kubectl, const std::string& job, int32_t replicas);

struct CheckpointArguments {
  std::string job;
  bool wait = false;
  std::chrono::seconds timeout{300};
};
[[nodiscard]] Result<int> Checkpoint(const Kubectl& kubectl, const CheckpointArguments& arguments);

[[nodiscard]] Result<int> Profile(const Kubectl& kubectl, const std::string& job, int steps);
[[nodiscard]] Result<int> Delete(const Kubectl& kubectl, const std::vector<std::string>& jobs);

struct ScalingArguments {
  std::string job;
  bool as_json = false;
};
[[nodiscard]] Result<int> Scaling(const Kubectl& kubectl, const ScalingArguments& arguments);

[[nodiscard]] Result<int> Top(const Kubectl& kubectl, const std::string& job);

}  // namespace lockstep::kubectl_plugin
