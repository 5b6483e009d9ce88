#pragma once
// Detects from the environment whether `lockstep run` is alone or on one of several machines that run the
// same job: variables of torchrun, of a launcher compatible with torchrun, or of Slurm. Pure.

#include <map>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;
// The environment of this process.
[[nodiscard]] Environment OwnEnvironment();

// The secret that the machines share; the user sets it.
inline constexpr const char* kTokenVariable = "LOCKSTEP_TOKEN";

struct Machines {
  int index = 0;  // of this machine; 0 hosts the rendezvous
  int count = 1;
  std::string host;  // where the others reach machine 0; empty if there is only one
  int port = 0;
  std::string neighbour;  // another machine, if its name is known
  std::string token;      // a secret that all machines share
  std::string launcher;   // the launcher whose variables were used, for messages
  // What Slurm assigned to the job on this machine; absent: use the manifest.
  std::optional<int> gpus;
  std::optional<int> processors;
};

// nullopt: no launcher's variables are set, so this machine runs all replicas. Fails if the variables
// contradict each other, or if several machines share no secret.
[[nodiscard]] Result<std::optional<Machines>> MachinesFrom(const Environment& environment);

}  // namespace lockstep::launch
