#include "runtime/common/command_line/completion.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/common/command_line/tree.h"

namespace lockstep::command_line {
namespace {

constexpr const char* kNoFiles = ":4\n";
constexpr const char* kFiles = ":0\n";

// The state before the word that is to be completed.
struct Place {
  const CLI::App* command = nullptr;
  const CLI::Option* value_of = nullptr;  // the preceding flag, if it takes a value
  std::size_t arguments = 0;              // positional arguments so far
  bool is_in_program = false;             // after "--"
};

bool IsFlag(std::string_view word) { return word.size() > 1 && word.starts_with('-'); }

const CLI::Option* FindFlag(const CLI::App& command, const std::string& flag) {
  for (const CLI::Option* option : OptionsOf(command)) {
    const std::vector<std::string> names = NamesOf(*option);
    if (std::find(names.begin(), names.end(), flag) != names.end()) return option;
  }
  return nullptr;
}

Place PlaceAfter(const CLI::App& app, const std::vector<std::string>& words) {
  Place place{.command = &app};
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const std::string& word = words[i];
    if (place.value_of != nullptr) {
      place.value_of = nullptr;
    } else if (word == "--") {
      place.is_in_program = true;
      return place;
    } else if (IsFlag(word)) {
      const CLI::Option* option = FindFlag(*place.command, word);
      if (option != nullptr && option->get_items_expected_min() > 0) place.value_of = option;
    } else if (const auto found = place.command->get_subcommands(
                   [&](const CLI::App* entry) { return entry->get_name() == word; });
               !found.empty()) {
      place.command = found.front();
    } else {
      ++place.arguments;
    }
  }
  return place;
}

class Answer {
 public:
  explicit Answer(std::string typed) : typed_(std::move(typed)) {}

  // Ignores duplicates: --help is a flag of each command.
  void Add(const std::string& value, const std::string& description) {
    if (!value.starts_with(typed_) || !values_.insert(value).second) return;
    lines_ += value + "\t" + description.substr(0, description.find('\n')) + "\n";
  }
  [[nodiscard]] std::string Take(const char* directive) { return std::move(lines_) + directive; }

 private:
  std::string typed_;
  std::set<std::string> values_;
  std::string lines_;
};

// From CLI::IsMember: "TEXT:{json,yaml}".
std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return Split(std::string_view(type).substr(begin + 1, end - begin - 1), ',');
}

// An argument of the type TEXT may be a file, unless the help says more.
bool MayNameFile(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.empty() || type == "TEXT" || type == "FILE" || type == "FOLDER";
}

std::string CompleteValue(const CLI::Option& option, Answer answer, const ArgumentValues& values) {
  const std::vector<std::string> choices = ChoicesOf(option);
  for (const std::string& choice : choices) answer.Add(choice, "");
  if (!choices.empty()) return answer.Take(kNoFiles);
  const auto known = values ? values(option.get_name(true)) : std::nullopt;
  if (known) {
    for (const std::string& value : *known) answer.Add(value, "");
    return answer.Take(kNoFiles);
  }
  return answer.Take(MayNameFile(option) ? kFiles : kNoFiles);
}

std::string CompleteFlag(const CLI::App& command, Answer answer) {
  for (const CLI::Option* option : OptionsOf(command)) {
    if (!IsShown(option->get_group())) continue;
    for (const std::string& name : NamesOf(*option)) answer.Add(name, option->get_description());
  }
  return answer.Take(kNoFiles);
}

std::string CompleteArgument(const Place& place, Answer answer, const ArgumentValues& values) {
  const auto commands = ShownCommandsOf(*place.command);
  for (const CLI::App* entry : commands) answer.Add(entry->get_name(), entry->get_description());
  if (!commands.empty()) return answer.Take(kNoFiles);
  const auto arguments =
      place.command->get_options([](const CLI::Option* option) { return option->get_positional(); });
  if (arguments.empty()) return answer.Take(kNoFiles);
  const CLI::Option& last = *arguments.back();
  if (place.arguments < arguments.size())
    return CompleteValue(*arguments[place.arguments], std::move(answer), values);
  return last.get_items_expected_max() > 1 ? CompleteValue(last, std::move(answer), values)
                                           : answer.Take(kNoFiles);
}

constexpr std::string_view kBash = R"(_PROGRAM() {
  local typed=("${COMP_WORDS[@]:1:COMP_CWORD}") line
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :4) compopt +o default 2>/dev/null ;;
      :*) ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <(PROGRAM __complete "${typed[@]}" 2>/dev/null)
}
complete -o default -F _PROGRAM PROGRAM
)";

constexpr std::string_view kZsh = R"(#compdef PROGRAM
_PROGRAM() {
  local -a candidates
  local line name directive tab=$'\t'
  while IFS= read -r line; do
    case $line in
      :*) directive=$line ;;
      *)
        name=${line%%$tab*}
        candidates+=("${name//:/\\:}:${line#*$tab}")
        ;;
    esac
  done < <(PROGRAM __complete "${(@)words[2,CURRENT]}" 2>/dev/null)
  if (( ${#candidates} )); then
    _describe PROGRAM candidates
  elif [[ $directive == :0 ]]; then
    _files
  fi
}
compdef _PROGRAM PROGRAM
)";

constexpr std::string_view kFish = R"(function __PROGRAM_complete
  set -l current (commandline -ct)
  set -l typed (commandline -opc)[2..] "$current"
  set -l lines (PROGRAM __complete $typed 2>/dev/null)
  if test "$lines" = :0
    __fish_complete_path "$current"
  else
    string match --invert --regex '^:' -- $lines
  end
end
complete -c PROGRAM -f -a '(__PROGRAM_complete)'
)";

std::string Replaced(std::string_view text, std::string_view name, const std::string& value) {
  std::string result;
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name)) {
    result += std::string(text.substr(0, at)) + value;
    text.remove_prefix(at + name.size());
  }
  return result + std::string(text);
}

}  // namespace

std::string CompletionsFor(const CLI::App& app, const std::vector<std::string>& words,
                           const ArgumentValues& values) {
  const Place place = PlaceAfter(app, words);
  if (place.is_in_program) return kFiles;
  const std::string typed = words.empty() ? "" : words.back();
  if (place.value_of != nullptr) return CompleteValue(*place.value_of, Answer(typed), values);
  if (IsFlag(typed) || typed == "-") return CompleteFlag(*place.command, Answer(typed));
  return CompleteArgument(place, Answer(typed), values);
}

Result<std::string> CompletionScript(std::string_view shell, const std::string& program) {
  for (const auto& [name, script] :
       {std::pair("bash", kBash), std::pair("zsh", kZsh), std::pair("fish", kFish)}) {
    if (shell == name) return Replaced(script, "PROGRAM", program);
  }
  return Error{ErrorCode::kInvalidArgument,
               "no completion for " + std::string(shell) + ": must be bash, zsh or fish"};
}

}  // namespace lockstep::command_line
