#include "runtime/common/command_line/usage.h"

#include <CLI/CLI.hpp>
#include <iostream>
#include <vector>

#include "runtime/common/base/suggestion.h"
#include "runtime/common/command_line/tree.h"

namespace lockstep::command_line {
namespace {

// The innermost command in the arguments.
const CLI::App& Reached(const CLI::App& app) {
  const CLI::App* reached = &app;
  for (auto parsed = reached->get_subcommands(); !parsed.empty(); parsed = reached->get_subcommands())
    reached = parsed.front();
  return *reached;
}

std::string UnknownWord(const CLI::App& command, const std::string& word) {
  if (word.starts_with('-') && word.size() > 1) {
    const std::string flag = word.substr(0, word.find('='));
    std::vector<std::string> known;
    for (const CLI::Option* option : OptionsOf(command)) {
      for (const std::string& name : NamesOf(*option)) known.push_back(name);
    }
    return "unknown flag \"" + flag + "\"" + DidYouMean(flag, known);
  }
  std::vector<std::string> commands;
  for (const CLI::App* entry : ShownCommandsOf(command)) commands.push_back(entry->get_name());
  if (commands.empty()) return "unexpected argument \"" + word + "\"";
  return "unknown command \"" + word + "\"" + DidYouMean(word, commands);
}

// "kubectl lockstep status", as it is typed.
std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : FullName(*parent) + " " + command.get_name();
}

}  // namespace

std::string UsageProblem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = Reached(app);
  const bool is_missing = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  if (is_missing || dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    // An unknown word is the most likely reason for a missing argument.
    const std::vector<std::string> unknown = app.remaining(true);
    if (!unknown.empty()) return UnknownWord(command, unknown.front());
  }
  if (is_missing && !ShownCommandsOf(command).empty()) return "a command is required";
  return error.what();
}

std::string MustNotBeNegative(const std::string& text) {
  return text.starts_with('-') ? "must be 0 or more, not " + text : "";
}

std::optional<int> ParseArguments(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    const std::string name = FullName(Reached(app));
    std::cerr << name << ": " << UsageProblem(app, error) << "\nRun `" << name << " --help` for usage.\n";
    return kUsageError;
  }
  return std::nullopt;
}

}  // namespace lockstep::command_line
