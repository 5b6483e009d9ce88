#include "runtime/tools/cli/torchrun_line.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "runtime/common/base/strings.h"

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

// Flags of `lockstep run` that may precede a script, too.
constexpr std::array<std::string_view, 4> kOwn{"--folder", "--replicas", "--checkpoint-uri", "--nproc"};
// Lockstep has a rendezvous, logs and a supervisor of its own, so these change nothing.
constexpr std::array<std::string_view, 15> kWithoutEffect{"--rdzv-backend",
                                                          "--rdzv-id",
                                                          "--rdzv-conf",
                                                          "--monitor-interval",
                                                          "--start-method",
                                                          "--role",
                                                          "--redirects",
                                                          "--tee",
                                                          "--local-ranks-filter",
                                                          "--local-addr",
                                                          "--logs-specs",
                                                          "--numa-binding",
                                                          "--event-log-handler",
                                                          "--duplicate-stdout-filters",
                                                          "--duplicate-stderr-filters"};
constexpr std::array<std::string_view, 4> kSwitches{"--standalone", "--no-prefix", "--module", "--no-python"};

template <std::size_t kSize>
bool IsOneOf(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// --nproc_per_node is --nproc-per-node; -m, -r and -t have long names.
std::string LongName(std::string name) {
  if (name == "-m") return "--module";
  if (name == "-r") return "--redirects";
  if (name == "-t") return "--tee";
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Text(const launch::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

Error Wrong(const std::string& flag, const std::string& value, const std::string& what) {
  return {ErrorCode::kInvalidArgument, flag + " " + value + ": " + what};
}

struct Flag {
  std::string name;
  std::string value;
};
struct Line {
  std::vector<Flag> flags;
  Words rest;  // from the script on

  [[nodiscard]] bool Has(std::string_view name) const {
    return std::any_of(flags.begin(), flags.end(), [&](const Flag& flag) { return flag.name == name; });
  }
};

Line Split(const Words& words) {
  Line line;
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (!word->starts_with('-') || *word == "-" || *word == "--") {
      line.rest.assign(word, words.end());
      break;
    }
    const std::size_t equals = word->find('=');
    Flag flag{.name = LongName(word->substr(0, equals))};
    if (equals != std::string::npos) {
      flag.value = word->substr(equals + 1);
    } else if (!IsOneOf(kSwitches, flag.name) && word + 1 != words.end()) {
      flag.value = *++word;
    }
    line.flags.push_back(std::move(flag));
  }
  return line;
}

Result<std::string> ProcessesPerNode(const std::string& value, const MachineResources& resources) {
  if (value == "cpu") return std::to_string(resources.processors);
  if (value == "auto") return std::to_string(resources.gpus > 0 ? resources.gpus : resources.processors);
  if (value != "gpu") return value;  // the flag of `lockstep run` checks the number
  if (resources.gpus == 0) return Wrong("--nproc-per-node", value, "this machine has no NVIDIA GPU");
  return std::to_string(resources.gpus);
}

// The machines of `lockstep run` are fixed, so both ends of a range must be equal.
Result<std::string> NodesOf(const std::string& value) {
  const Words ends = lockstep::Split(value, ':');
  if (ends.size() == 1 || (ends.size() == 2 && ends[0] == ends[1])) return ends[0];
  return Wrong("--nnodes", value, "`lockstep run` has a fixed number of machines: name one number");
}

Result<void> Take(const Flag& flag, const MachineResources& resources, TorchrunLine& line) {
  if (flag.name == "--nproc-per-node") {
    LOCKSTEP_TRY(const std::string processes, ProcessesPerNode(flag.value, resources));
    line.flags.insert(line.flags.end(), {"--nproc", processes});
  } else if (flag.name == "--nnodes") {
    LOCKSTEP_TRY(const std::string nodes, NodesOf(flag.value));
    if (nodes != "1") line.machines["NNODES"] = nodes;
  } else if (flag.name == "--node-rank") {
    line.machines["NODE_RANK"] = flag.value;
  } else if (flag.name == "--master-addr") {
    line.machines["MASTER_ADDR"] = flag.value;
  } else if (flag.name == "--master-port") {
    line.machines["MASTER_PORT"] = flag.value;
  } else if (flag.name == "--rdzv-endpoint") {
    const std::size_t colon = flag.value.rfind(':');
    line.machines["MASTER_ADDR"] = flag.value.substr(0, colon);
    if (colon != std::string::npos) line.machines["MASTER_PORT"] = flag.value.substr(colon + 1);
  } else if (flag.name == "--max-restarts") {
    line.flags.insert(line.flags.end(), {flag.name, flag.value});
  } else if (flag.name == "--log-dir") {
    line.flags.insert(line.flags.end(), {"--folder", flag.value});
  } else if (IsOneOf(kOwn, flag.name)) {
    line.flags.insert(line.flags.end(), {flag.name, flag.value});
  } else if (flag.name == "--no-prefix") {
    line.flags.push_back(flag.name);
  } else if (!IsOneOf(kSwitches, flag.name) && !IsOneOf(kWithoutEffect, flag.name)) {
    return Wrong(flag.name, flag.value, "is neither a flag of `lockstep run` nor one of torchrun");
  }
  return {};
}

Words CommandOf(const Line& line, const launch::Environment& environment) {
  if (line.Has("--no-python")) return line.rest;
  const std::string python = Text(environment, "PYTHON_EXEC");  // as for torchrun
  Words command{python.empty() ? "python3" : python, "-u"};
  if (line.Has("--module")) command.emplace_back("-m");
  command.insert(command.end(), line.rest.begin(), line.rest.end());
  return command;
}

// Of a single machine the addresses mean nothing. Slurm knows the number of each of several.
void CompleteMachines(const Line& line, const launch::Environment& environment,
                      launch::Environment& machines) {
  if (line.Has("--standalone") || !machines.contains("NNODES")) return machines.clear();
  const std::string slurm = Text(environment, "SLURM_NODEID");
  if (!slurm.empty()) machines.try_emplace("NODE_RANK", slurm);
}

}  // namespace

Result<std::optional<TorchrunLine>> FromTorchrun(const Words& words, const launch::Environment& environment,
                                                 const MachineResources& resources) {
  const Line line = Split(words);
  if (line.rest.empty() || line.rest.front() == "--") return std::optional<TorchrunLine>();
  if (!line.rest.front().ends_with(".py") && !line.Has("--module") && !line.Has("--no-python"))
    return std::optional<TorchrunLine>();
  TorchrunLine result;
  for (const Flag& flag : line.flags) LOCKSTEP_TRY(Take(flag, resources, result));
  result.command = CommandOf(line, environment);
  CompleteMachines(line, environment, result.machines);
  return std::optional(std::move(result));
}

}  // namespace lockstep::cli
