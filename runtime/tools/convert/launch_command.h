#pragma once
// Converts a container's command that starts ranks with torchrun to the plain script that Lockstep starts
// instead. Pure.

#include <map>
#include <string>
#include <vector>

namespace lockstep::convert {

struct Launch {
  bool is_torchrun = false;
  std::vector<std::string> command;  // the plain program …
  std::vector<std::string> args;     // … and its arguments
  // Flags of torchrun in their long form with '_' for '-': "--nproc_per_node". Flags without a value have "".
  std::map<std::string, std::string> flags;
  bool prepares = false;              // a shell script does more than start torchrun
  std::vector<std::string> problems;  // why it cannot be started in the same way
};

[[nodiscard]] Launch UnwrapLauncher(const std::vector<std::string>& command,
                                    const std::vector<std::string>& args);

}  // namespace lockstep::convert
