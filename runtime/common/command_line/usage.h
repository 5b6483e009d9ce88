#pragma once
// Reports wrong arguments in the same way for all programs: a line with the problem and the most similar
// valid name, a line that refers to --help, and exit code 2. One thread.

#include <optional>
#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lockstep::command_line {

inline constexpr int kUsageError = 2;

// nullopt: the arguments are stored in the variables that `app` refers to. Otherwise the exit code: 0 after
// --help or --version was printed, kUsageError after the problem was printed on standard error.
[[nodiscard]] std::optional<int> ParseArguments(CLI::App& app, int argc, const char* const* argv);

// One line about the arguments that `app` failed to parse with `error`: `unknown command "rum": did you mean
// "run"?`.
[[nodiscard]] std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error);

// A CLI11 check for counts; CLI11's own check prints a limit of 300 digits. Returns the problem, or "".
[[nodiscard]] std::string MustNotBeNegative(const std::string& text);

}  // namespace lockstep::command_line
