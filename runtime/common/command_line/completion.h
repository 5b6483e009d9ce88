#pragma once
// Shell completion from the CLI11 command tree, so that a new command or flag needs no further code. The
// shell's script calls the program with a hidden command, in the protocol of Cobra, which kubectl also uses
// for its plugins. One thread.

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

// Possible values of an argument by its name in the help, such as the jobs for "JOB"; nullopt: unknown.
using ArgumentValues = std::function<std::optional<std::vector<std::string>>(const std::string& argument)>;

// `words`: the arguments after the program's name; the last one is to be completed and may be empty. Returns
// a line for each candidate, "value<tab>description", and a last one: ":4" if nothing else is possible, ":0"
// if the shell should offer files.
[[nodiscard]] std::string CompletionsFor(const CLI::App& app, const std::vector<std::string>& words,
                                         const ArgumentValues& values = {});

// The script that a user sources. `shell`: bash, zsh or fish; an error names these.
[[nodiscard]] Result<std::string> CompletionScript(std::string_view shell, const std::string& program);

}  // namespace lockstep::command_line
