#pragma once
// Runs a command to its end and takes what it writes to its standard output; its standard error is ours. Any
// thread; blocks the caller until then or the deadline, at which the command is killed.

#include <string>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct Command {
  std::vector<std::string> words;        // the program first, looked up in PATH
  std::vector<std::string> environment;  // "NAME=value", added to ours
  Milliseconds timeout{60'000};
};

// An error where it could not be started, ran too long, wrote more than a megabyte, or did not end with 0.
[[nodiscard]] Result<std::string> RunCommand(const Command& command);

}  // namespace lockstep::kube
