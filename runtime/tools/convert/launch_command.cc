#include "runtime/tools/convert/launch_command.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/common/base/strings.h"
#include "runtime/tools/convert/field_table.h"
#include "runtime/tools/convert/shell_words.h"

namespace lockstep::convert {
namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kRunModule = "torch.distributed.run";
constexpr std::string_view kLaunchModule = "torch.distributed.launch";
constexpr std::array kOtherLaunchers = {"accelerate", "deepspeed", "mpirun", "mpiexec", "horovodrun"};
// Commands before torchrun in a script that may as well run once in each rank.
constexpr std::array kHarmless = {"cd", "echo", "exec", "exit", "export", "set", "source", "ulimit", "."};

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

template <typename List>
bool IsAmong(const List& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

struct Head {
  Words interpreter;  // the one that runs the script
  std::size_t end = 0;
  bool is_launch_module = false;
};

// The position of torchrun in `words`.
std::optional<Head> FindHead(const Words& words) {
  if (words.empty()) return std::nullopt;
  const std::string name = BaseName(words.front());
  if (name == "torchrun") {
    // torchrun runs scripts with the interpreter in its own folder.
    return Head{{words.front().substr(0, words.front().size() - name.size()) + "python3"}, 1};
  }
  if (!name.starts_with("python")) return std::nullopt;
  for (std::size_t at = 1; at + 1 < words.size() && words[at].starts_with('-'); ++at) {
    if (words[at] == "-W" || words[at] == "-X") ++at;
    if (words[at] != "-m") continue;
    const std::string& module = words[at + 1];
    if (module != kRunModule && module != kLaunchModule) return std::nullopt;
    return Head{
        {words.begin(), words.begin() + static_cast<std::ptrdiff_t>(at)}, at + 2, module == kLaunchModule};
  }
  return std::nullopt;
}

struct Parsed {
  std::map<std::string, std::string> flags;
  std::size_t script = 0;  // its index in the words
  Words problems;
};

std::string LongForm(std::string flag) {
  if (flag == "-m") return "--module";
  if (flag == "-r") return "--redirects";
  if (flag == "-t") return "--tee";
  // "--nproc-per-node" and "--nproc_per_node" are one flag.
  if (flag.starts_with("--")) std::replace(flag.begin() + 2, flag.end(), '-', '_');
  return flag;
}

bool TakesValue(const std::string& flag) {
  static constexpr std::array kSwitches = {"--module",  "--no_python", "--standalone",
                                           "--use_env", "--run_path",  "--virtual_local_rank"};
  return !IsAmong(kSwitches, flag);
}

Parsed ParseFlags(const Words& words, std::size_t at) {
  Parsed parsed;
  for (; at < words.size() && words[at].size() > 1 && words[at].starts_with('-'); ++at) {
    const std::size_t equals = std::min(words[at].find('='), words[at].size());
    const std::string flag = LongForm(words[at].substr(0, equals));
    if (FindField(LaunchFlags(), flag) == nullptr) {
      parsed.problems.push_back(flag + ": not a flag of torchrun that convert supports; remove it");
    }
    std::string& value = parsed.flags[flag];
    if (equals < words[at].size()) {
      value = words[at].substr(equals + 1);
    } else if (TakesValue(flag) && at + 1 < words.size()) {
      value = words[++at];
    }
  }
  parsed.script = at;
  if (at >= words.size()) parsed.problems.emplace_back("names no script after the flags of torchrun");
  return parsed;
}

// The words before the script's own arguments.
Words PlainProgram(const Head& head, const Parsed& parsed, const std::string& script) {
  if (parsed.flags.contains("--no_python")) return {script};
  Words words = head.interpreter;
  if (parsed.flags.contains("--module")) words.emplace_back("-m");
  words.push_back(script);
  return words;
}

void Take(Launch& launch, const Head& head, const Parsed& parsed) {
  launch.is_torchrun = true;
  launch.flags.insert(parsed.flags.begin(), parsed.flags.end());
  launch.problems.insert(launch.problems.end(), parsed.problems.begin(), parsed.problems.end());
  if (head.is_launch_module && !parsed.flags.contains("--use_env")) {
    launch.problems.emplace_back(
        "torch.distributed.launch gives the script --local-rank; let the script read LOCAL_RANK from its "
        "environment, and add --use_env here");
  }
}

bool IsAssignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  return equals != std::string::npos && equals > 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// Skips the words that only change the environment of the command: FOO=1 exec torchrun …
std::size_t FirstWord(const ShellCommand& command) {
  std::size_t at = 0;
  while (at + 1 < command.words.size() &&
         (IsAssignment(command.words[at].value) || command.words[at].value == "exec"))
    ++at;
  return at;
}

std::string UnwrapScript(std::string script, Launch& launch) {
  const std::vector<ShellCommand> commands = ShellCommands(script);
  for (auto command = commands.rbegin(); command != commands.rend(); ++command) {
    const std::size_t first = FirstWord(*command);
    Words values;
    for (std::size_t at = first; at < command->words.size(); ++at) values.push_back(command->words[at].value);
    const auto head = FindHead(values);
    if (!head) {
      launch.prepares |= !IsAmong(kHarmless, values.front()) && !IsAssignment(values.front());
      continue;
    }
    const Parsed parsed = ParseFlags(values, head->end);
    Take(launch, *head, parsed);
    Words raw;
    for (std::size_t at = 0; at < first; ++at) raw.push_back(command->words[at].raw);
    if (parsed.script < values.size()) {
      const std::size_t script_at = first + parsed.script;
      for (std::string& word : PlainProgram(*head, parsed, command->words[script_at].raw))
        raw.push_back(std::move(word));
      for (std::size_t at = script_at + 1; at < command->words.size(); ++at)
        raw.push_back(command->words[at].raw);
    }
    script.replace(command->begin, command->end - command->begin, Join(raw, " "));
  }
  return script;
}

// The index of SCRIPT in `sh -c SCRIPT`.
std::optional<std::size_t> FindScript(const Words& words) {
  static constexpr std::array kShells = {"sh", "bash", "dash", "ash", "zsh"};
  if (words.empty() || !IsAmong(kShells, BaseName(words.front()))) return std::nullopt;
  for (std::size_t at = 1; at + 1 < words.size() && words[at].starts_with('-'); ++at) {
    if (!words[at].starts_with("--") && words[at].find('c') != std::string::npos) return at + 1;
    if (words[at] == "-o") ++at;
  }
  return std::nullopt;
}

bool NamesTorchrun(const std::string& text) {
  return text.find("torchrun") != std::string::npos || text.find(kRunModule) != std::string::npos ||
         text.find(kLaunchModule) != std::string::npos;
}

void LookForOthers(const Words& words, Launch& launch) {
  if (launch.is_torchrun || words.empty()) return;
  const auto script = FindScript(words);
  const Words named = script ? Split(words[*script], ' ') : Words{words.front()};
  for (const std::string& word : named) {
    if (!IsAmong(kOtherLaunchers, BaseName(word))) continue;
    launch.problems.push_back(BaseName(word) +
                              " starts processes of its own; name the plain script, which Lockstep starts "
                              "once for each rank with torchrun's environment");
    return;
  }
  if (std::any_of(words.begin(), words.end(), NamesTorchrun)) {
    launch.problems.emplace_back(
        "names torchrun, but not as its first word; name the plain script, which Lockstep starts once for "
        "each rank with torchrun's environment");
  }
}

}  // namespace

Launch UnwrapLauncher(const Words& command, const Words& args) {
  Words words = command;
  words.insert(words.end(), args.begin(), args.end());
  Launch launch{.command = command, .args = args};
  if (const auto head = FindHead(words)) {
    const Parsed parsed = ParseFlags(words, head->end);
    Take(launch, *head, parsed);
    if (parsed.script < words.size()) {
      launch.command = PlainProgram(*head, parsed, words[parsed.script]);
      launch.args.assign(words.begin() + static_cast<std::ptrdiff_t>(parsed.script) + 1, words.end());
    }
  } else if (const auto script = FindScript(words)) {
    std::string& text =
        *script < command.size() ? launch.command[*script] : launch.args[*script - command.size()];
    text = UnwrapScript(std::move(text), launch);
  }
  LookForOthers(words, launch);
  return launch;
}

}  // namespace lockstep::convert
