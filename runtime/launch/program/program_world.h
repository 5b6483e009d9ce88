#pragma once
// What launchers other than torchrun read about a round: JAX's variables, and the hostfile of DeepSpeed and of MPI
// implementations. Pure.

#include <string>
#include <vector>

#include "runtime/common/protocol/rank_control.h"

namespace lockstep::launch {

// As NAME=value. JAX starts its coordinator where torchrun's store would be, so a program uses one of the two.
[[nodiscard]] std::vector<std::string> JaxEnvironment(const protocol::RankAssignment& assignment, int nproc);

// One line for each host, in order of rank: "10.0.0.1 slots=8". Pods with the same address (`lockstep run`) share a
// line, because DeepSpeed rejects a host that is listed twice.
[[nodiscard]] std::string HostfileOf(const std::vector<std::string>& hosts, int nproc);

}  // namespace lockstep::launch
