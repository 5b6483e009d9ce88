#pragma once
// Runs a command to its end and returns its standard output; its standard error is inherited. Blocks the
// caller until the command ends or the deadline passes, when the command is killed. Any thread.

#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct Command {
  std::vector<std::string> words;        // the program first, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", added to the operator's environment
  Milliseconds timeout{60'000};
};

// Fails if the command cannot be started, exceeds its deadline, writes more than 1 MB, or exits with a code
// other than 0.
[[nodiscard]] Result<std::string> RunCommand(const Command& command);

}  // namespace lockstep::kube
