#pragma once
// What a job without spec.training runs: the command of the trainer container. The operator leaves the words
// to the kubelet; `lockstep run` reads them as a kubelet does. Pure.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::api {

// The container of that name in the pod template; null: there is none.
[[nodiscard]] const Json* FindTrainer(const WorkerSpec& worker);

using Variables = std::map<std::string, std::string>;

// "$(NAME)" becomes the variable's value, and stays where there is none; "$$" becomes "$".
[[nodiscard]] std::string ExpandReferences(std::string_view text, const Variables& variables);

struct ProgramStart {
  std::vector<std::string> words;                                // command and args
  std::vector<std::pair<std::string, std::string>> environment;  // env
  std::vector<std::string> left_out;                             // of env: only a cluster knows their values
};

// `given`: what the operator would put before the container's own variables.
[[nodiscard]] ProgramStart ProgramStartOf(const WorkerSpec& worker, Variables given);

}  // namespace lockstep::api
