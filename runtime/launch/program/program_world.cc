#include "runtime/launch/program/program_world.h"

#include <algorithm>
#include <utility>

#include "runtime/common/http/address.h"

namespace lockstep::launch {

std::vector<std::string> JaxEnvironment(const protocol::RankAssignment& assignment, int nproc) {
  std::vector<std::string> environment = {
      "JAX_COORDINATOR_ADDRESS=" + http::JoinHostPort(assignment.store_host, assignment.store_port),
      "JAX_NUM_PROCESSES=" + std::to_string(assignment.world),
      "JAX_PROCESS_ID=" + std::to_string(assignment.rank)};
  // One rank in a pod has all of its devices.
  if (nproc > 1) environment.push_back("JAX_LOCAL_DEVICE_IDS=" + std::to_string(assignment.local_rank));
  return environment;
}

std::string HostfileOf(const std::vector<std::string>& hosts, int nproc) {
  std::vector<std::pair<std::string, int>> slots;
  for (const std::string& host : hosts) {
    const auto same =
        std::find_if(slots.begin(), slots.end(), [&](const auto& entry) { return entry.first == host; });
    if (same == slots.end()) {
      slots.emplace_back(host, nproc);
    } else {
      same->second += nproc;
    }
  }
  std::string text;
  for (const auto& [host, count] : slots) text += host + " slots=" + std::to_string(count) + "\n";
  return text;
}

}  // namespace lockstep::launch
