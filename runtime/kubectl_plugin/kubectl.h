#pragma once
// Runs `kubectl`, which has the contexts, credentials and proxies of whoever calls. One thread. A command
// ends with us, whatever ends us. Failures come as failure_text explains them; what kubectl has to say beside
// its success goes to our standard error.

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
  // `program`: looked up in PATH. `flags`: those that every command gets, such as --context=…
  Kubectl(std::string program, std::vector<std::string> flags)
      : program_(std::move(program)), flags_(std::move(flags)) {}

  enum class Input { kNone, kOurs };

  // What it wrote to its standard output, after its end; within a minute. Its input is empty, or ours.
  [[nodiscard]] Result<std::string> Run(const std::vector<std::string>& words,
                                        Input input = Input::kNone) const;

  // Hands on what it writes as it comes, until it ends, `on_output` says false, or the deadline
  // (kDeadlineExceeded). Without a deadline for what a person watches until they have enough.
  using OnOutput = std::function<bool(std::string_view bytes)>;
  [[nodiscard]] Result<void> Stream(const std::vector<std::string>& words, const OnOutput& on_output,
                                    std::optional<SteadyTime> deadline = {},
                                    Input input = Input::kNone) const;

 private:
  std::string program_;
  std::vector<std::string> flags_;
};

}  // namespace lockstep::kubectl_plugin
