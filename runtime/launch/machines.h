#pragma once
// Where `lockstep run` finds itself: alone, or one of several machines that were all told to run the same
// job, as their environment says: torchrun's, a launcher's that speaks to torchrun, or Slurm's. Pure.

#include <map>
#include <optional>
#include <string>

#include "runtime/common/base/result.h"

namespace lockstep::launch {

using Environment = std::map<std::string, std::string>;
// Of this process.
[[nodiscard]] Environment OwnEnvironment();

// The secret that several machines share, for the user to set.
inline constexpr const char* kTokenVariable = "LOCKSTEP_TOKEN";

struct Machines {
  int index = 0;  // of this one; 0 hosts the rendezvous
  int count = 1;
  std::string host;  // where the others reach machine 0; empty where there is one only
  int port = 0;
  std::string neighbour;  // another machine, where its name is known
  std::string token;      // a secret that all of them share
  std::string said_by;    // whose variables said so, for people
  // What Slurm gave the job on this machine; absent: as the manifest says.
  std::optional<int> gpus;
  std::optional<int> processors;
};

// nullopt: nobody says that there are machines, so this one is to play all of them. Fails where the variables
// contradict each other, and where several machines share no secret.
[[nodiscard]] Result<std::optional<Machines>> MachinesFrom(const Environment& environment);

}  // namespace lockstep::launch
