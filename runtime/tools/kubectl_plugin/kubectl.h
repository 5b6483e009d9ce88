#pragma once
// Runs `kubectl`, which uses the caller's contexts, credentials and proxies. One thread. A command ends with
// this process, however that ends. failure_text explains failures; other messages of kubectl go to our
// standard error.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::kubectl_plugin {

class Kubectl {
 public:
  // `program`: looked up in PATH. `flags`: added to every command, such as --context=…
  Kubectl(std::string program, std::vector<std::string> flags)
      : program_(std::move(program)), flags_(std::move(flags)) {}

  enum class Input { kNone, kOurs };

  // Returns the standard output of a command that ends within a minute. Its standard input is empty, or ours.
  [[nodiscard]] Result<std::string> Run(const std::vector<std::string>& words,
                                        Input input = Input::kNone) const;

  // Passes the output on as it arrives, until the command ends, `on_output` returns false, or the deadline
  // passes (kDeadlineExceeded). Without a deadline for output that a user watches.
  using OnOutput = std::function<bool(std::string_view bytes)>;
  [[nodiscard]] Result<void> Stream(const std::vector<std::string>& words, const OnOutput& on_output,
                                    std::optional<SteadyTime> deadline = {},
                                    Input input = Input::kNone) const;

 private:
  std::string program_;
  std::vector<std::string> flags_;
};

}  // namespace lockstep::kubectl_plugin
