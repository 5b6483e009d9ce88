#pragma once
// Command lines of all our programs fail in the same way: one line that says what is wrong and what was
// probably meant, one that names the help, and exit code 2. One thread.

#include <optional>
#include <string>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace lockstep::command_line {

inline constexpr int kUsageError = 2;

// Nothing: the arguments are in the variables that `app` was given. Otherwise the code to exit with: 0 where
// --help or --version was asked for and is printed, kUsageError where the arguments are wrong and standard
// error says so.
[[nodiscard]] std::optional<int> ParseArguments(CLI::App& app, int argc, const char* const* argv);

// What is wrong with the arguments that `app` failed to parse with `error`, in one line:
// `unknown command "rum": did you mean "run"?`.
[[nodiscard]] std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error);

// A check of a count for CLI11, whose own names a limit of 300 digits: what is wrong, or nothing.
[[nodiscard]] std::string MustNotBeNegative(const std::string& text);

}  // namespace lockstep::command_line
