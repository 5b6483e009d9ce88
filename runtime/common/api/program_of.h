#pragma once
// What a job without spec.training runs: the command of the trainer container. The operator leaves the
// expansion of variables to the kubelet; `lockstep run` expands them like a kubelet. Pure.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::api {

// The container of that name in the pod template; null if there is none.
[[nodiscard]] const Json* FindTrainer(const WorkerSpec& worker);

using Variables = std::map<std::string, std::string>;

// Replaces "$(NAME)" by the variable's value, or leaves it if there is no such variable; "$$" becomes "$".
[[nodiscard]] std::string ExpandReferences(std::string_view text, const Variables& variables);

struct ProgramStart {
  std::vector<std::string> words;                                // command and args
  std::vector<std::pair<std::string, std::string>> environment;  // env
  std::vector<std::string> left_out;  // entries of env whose values only a cluster knows
};

// `given`: the variables that the operator would put before the container's own.
[[nodiscard]] ProgramStart ProgramStartOf(const WorkerSpec& worker, Variables given);

}  // namespace lockstep::api
