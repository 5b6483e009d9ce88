#pragma once
// What a CLI11 command accepts. Private to this folder. Pure.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::command_line {

// Commands and flags of the empty group are hidden in --help.
[[nodiscard]] inline bool IsShown(const std::string& group) { return !group.empty(); }

[[nodiscard]] inline std::vector<const CLI::App*> ShownCommandsOf(const CLI::App& command) {
  return command.get_subcommands(
      [](const CLI::App* entry) { return !entry->get_name().empty() && IsShown(entry->get_group()); });
}

// The flags and arguments of the command and of its option groups, and those of its parent commands if it
// accepts them.
[[nodiscard]] inline std::vector<const CLI::Option*> OptionsOf(const CLI::App& command) {
  std::vector<const CLI::Option*> options = command.get_options();
  for (const CLI::App* group :
       command.get_subcommands([](const CLI::App* entry) { return entry->get_name().empty(); })) {
    for (const CLI::Option* option : group->get_options()) options.push_back(option);
  }
  if (command.get_parent() != nullptr && command.get_fallthrough()) {
    for (const CLI::Option* option : OptionsOf(*command.get_parent())) options.push_back(option);
  }
  return options;
}

// "-o" and "--output"; empty for a positional argument.
[[nodiscard]] inline std::vector<std::string> NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

}  // namespace lockstep::command_line
