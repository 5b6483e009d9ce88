#pragma once
// Completion of the words that a person types in a shell, from the tree of CLI11: a new command or flag needs
// no further line. The shell's script asks the program itself, by a hidden command, in the protocol of Cobra,
// which kubectl speaks with its plugins, too. One thread.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/common/base/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::command_line {

// `PROGRAM __complete WORD…` prints what CompletionsFor returns.
inline constexpr std::string_view kCompleteCommand = "__complete";

// Values of an argument by its name in the help, such as the jobs for "JOB"; nothing: that is not known.
using ArgumentValues = std::function<std::optional<std::vector<std::string>>(const std::string& argument)>;

// `words`: those behind the program's name; the last is to be completed and may be empty. Returns a line for
// each candidate, "value<tab>description", and a last one: ":4" where nothing else is possible, ":0" where
// the shell should offer files.
[[nodiscard]] std::string CompletionsFor(const CLI::App& app, const std::vector<std::string>& words,
                                         const ArgumentValues& values = {});

// What a person sources. `shell`: bash, zsh or fish; an error names these.
[[nodiscard]] Result<std::string> CompletionScript(std::string_view shell, const std::string& program);

}  // namespace lockstep::command_line
