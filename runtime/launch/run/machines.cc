#include "runtime/launch/run/machines.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "runtime/common/base/strings.h"
#include "runtime/launch/run/node_list.h"

namespace lockstep::launch {
namespace {

constexpr int kTorchrunPort = 29'500;  // torchrun's own default
// For Slurm jobs: plus the last four digits of the job id, as is common.
constexpr int kFirstSlurmPort = 15'000;
constexpr int kSlurmPorts = 10'000;
constexpr std::size_t kShortestToken = 16;

Error WrongMachines(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  [[nodiscard]] std::string Text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }
  [[nodiscard]] bool Has(const std::string& name) const { return !Text(name).empty(); }

  // The variable that torchrun itself reads, or the plain name that scripts pass to it.
  [[nodiscard]] std::string TorchrunName(const std::string& name) const {
    return Has("PET_" + name) ? "PET_" + name : name;
  }

  [[nodiscard]] Result<int> Number(const std::string& name, int lowest, int highest) const {
    const std::string text = Text(name);
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < lowest || number > highest) {
      return WrongMachines(name + ": must be a number from " + std::to_string(lowest) + " to " +
                           std::to_string(highest) + ", not \"" + Truncate(text, 80) + "\"");
    }
    return number;
  }

 private:
  const Environment& environment_;
};

Result<int> CountOf(const Variables& variables, const std::string& name) {
  return variables.Number(name, 1, static_cast<int>(kMostMachines));
}

Result<Machines> FromRanks(const Variables& variables, const std::string& index, const std::string& count) {
  Machines machines{.launcher = index + " and " + count};
  LOCKSTEP_TRY(machines.count, CountOf(variables, count));
  LOCKSTEP_TRY(machines.index, variables.Number(index, 0, machines.count - 1));
  machines.port = kTorchrunPort;
  return machines;
}

// One process per machine, started by torchrun or a launcher that sets the same variables.
Result<Machines> FromTorchrun(const Variables& variables) {
  if (variables.Has("LOCAL_WORLD_SIZE")) {
    LOCKSTEP_TRY(const int local, CountOf(variables, "LOCAL_WORLD_SIZE"));
    if (local > 1) {
      return WrongMachines(
          "LOCAL_WORLD_SIZE: " + std::to_string(local) +
          " on a machine: start one (torchrun --nproc-per-node 1); spec.nprocPerNode says how many "
          "ranks it starts");
    }
  }
  return FromRanks(variables, "RANK", "WORLD_SIZE");
}

Result<Machines> FromSlurm(const Variables& variables) {
  Machines machines{.launcher = "Slurm"};
  LOCKSTEP_TRY(machines.count, CountOf(variables, "SLURM_STEP_NUM_NODES"));
  LOCKSTEP_TRY(const int tasks, CountOf(variables, "SLURM_STEP_NUM_TASKS"));
  if (tasks != machines.count) {
    return WrongMachines(
        "SLURM_STEP_NUM_TASKS: " + std::to_string(tasks) + " tasks on " + std::to_string(machines.count) +
        " nodes: start one on each (srun --ntasks-per-node=1); spec.nprocPerNode says how many "
        "ranks it starts");
  }
  LOCKSTEP_TRY(machines.index, variables.Number("SLURM_NODEID", 0, machines.count - 1));
  LOCKSTEP_TRY(const auto names,
               ExpandNodeList(variables.Text("SLURM_STEP_NODELIST")).WithContext("SLURM_STEP_NODELIST"));
  if (static_cast<int>(names.size()) != machines.count) {
    return WrongMachines("SLURM_STEP_NODELIST: names " + std::to_string(names.size()) +
                         " machines, SLURM_STEP_NUM_NODES " + std::to_string(machines.count));
  }
  machines.host = names.front();
  if (names.size() > 1) machines.neighbour = machines.index == 0 ? names[1] : names[0];
  LOCKSTEP_TRY(const int job, variables.Number("SLURM_JOB_ID", 0, std::numeric_limits<int>::max()));
  machines.port = kFirstSlurmPort + job % kSlurmPorts;
  for (const auto& [name, count] : {std::pair("SLURM_GPUS_ON_NODE", &machines.gpus),
                                    std::pair("SLURM_CPUS_PER_TASK", &machines.processors)}) {
    if (!variables.Has(name)) continue;
    LOCKSTEP_TRY(*count, variables.Number(name, 0, 100'000));
  }
  return machines;
}

// A batch script that sets NODE_RANK from SLURM_NODEID sets its own value, 0, for all nodes.
Result<Machines> FromNodeRank(const Variables& variables, const std::string& index,
                              const std::string& count) {
  LOCKSTEP_TRY(Machines machines, FromRanks(variables, index, count));
  const bool is_step = variables.Has("SLURM_STEP_NODELIST") && variables.Text("SLURM_STEP_NUM_NODES") != "1";
  if (is_step && variables.Text("SLURM_NODEID") != std::to_string(machines.index)) {
    return WrongMachines(index + " is " + std::to_string(machines.index) + ", but SLURM_NODEID " +
                         variables.Text("SLURM_NODEID") + ": leave " + index + " and " + count +
                         " unset in Slurm's jobs");
  }
  return machines;
}

// The innermost launcher decides: torchrun inside a Slurm job comes before Slurm.
Result<std::optional<Machines>> Choose(const Variables& variables) {
  const auto some = [](Result<Machines> machines) -> Result<std::optional<Machines>> {
    if (!machines.ok()) return machines.error();
    return std::optional(*std::move(machines));
  };
  const std::string index = variables.TorchrunName("NODE_RANK");
  const std::string count = variables.TorchrunName("NNODES");
  if (variables.Has("RANK") && variables.Has("WORLD_SIZE")) return some(FromTorchrun(variables));
  if (variables.Has(index) && variables.Has(count)) return some(FromNodeRank(variables, index, count));
  // Scripts of Slurm jobs set MASTER_ADDR and the like identically on all nodes.
  if (variables.Has("SLURM_STEP_NODELIST")) return some(FromSlurm(variables));
  if (variables.Has(index))
    return WrongMachines(index + " is set, but NNODES, how many machines there are, is not");
  if (variables.Has(count) && variables.Text(count) != "1")
    return WrongMachines(count + " is set, but NODE_RANK, which of the machines this is, is not");
  return std::optional<Machines>();
}

Result<void> CheckToken(const std::string& token) {
  const std::string name = kTokenVariable;
  const std::string how = "; set it for all machines alike, for example with export " + name +
                          "=$(openssl rand -hex 16) in the batch script";
  if (token.empty())
    return WrongMachines(name + " is not set: the machines need it as their shared secret" + how);
  const bool is_plain = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kShortestToken || !is_plain) {
    return WrongMachines(name + ": must be " + std::to_string(kShortestToken) +
                         " or more letters, digits and signs without a space" + how);
  }
  return {};
}

bool IsIpv6Address(const std::string& text) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

Result<void> AddRendezvous(const Variables& variables, Machines& machines) {
  const std::string address = variables.TorchrunName("MASTER_ADDR");
  const std::string port = variables.TorchrunName("MASTER_PORT");
  if (variables.Has(address)) machines.host = variables.Text(address);
  if (machines.host.empty())
    return WrongMachines(
        "MASTER_ADDR is not set: the address of the machine with rank 0, by which all reach it");
  if (machines.host.find_first_of(" /@?#:[]") != std::string::npos && !IsIpv6Address(machines.host)) {
    return WrongMachines(address +
                         ": must be a name, an IPv4 address or an IPv6 address without brackets, not \"" +
                         Truncate(machines.host, 80) + "\"");
  }
  if (variables.Has(port)) {
    LOCKSTEP_TRY(machines.port, variables.Number(port, 1, 65'535));
    // torchrun uses that port for its own store.
    if (variables.Text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++machines.port;
  }
  machines.token = variables.Text(kTokenVariable);
  return CheckToken(machines.token);
}

}  // namespace

Environment OwnEnvironment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<std::optional<Machines>> MachinesFrom(const Environment& environment) {
  const Variables variables(environment);
  LOCKSTEP_TRY(std::optional<Machines> machines, Choose(variables));
  if (machines.has_value() && machines->count > 1) LOCKSTEP_TRY(AddRendezvous(variables, *machines));
  return machines;
}

}  // namespace lockstep::launch
