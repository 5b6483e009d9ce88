#pragma once
// What NCCL knows of ranks that wait for each other. Its RAS subsystem, a thread in each process that uses NCCL, counts
// the collectives that each rank of a communicator has entered. The supervisor asks it when it judges a hang.
//
// The protocol and the answer are those of NCCL 2.28.7 to 2.30.7, src/ras/client_support.cc (rasClientEventLoop,
// rasDumpCommsToJSON). NCCL 2.24 to 2.28.3 has RAS without JSON; its text is for people, so it is not read. NCCL counts
// neither sends and receives nor what a CUDA graph replays (src/plugin/profiler.cc, ncclProfilerStartTaskEvents).

#include <sys/types.h>

#include <cstdint>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/common/base/clock.h"
#include "runtime/common/base/result.h"

namespace lockstep::launch {

struct RasRank {
  int64_t rank = -1;                                     // in its communicator
  std::string host;                                      // an IP address
  int64_t pid = -1;                                      // as the process itself sees it
  bool ends = false;                                     // it finalizes, destroys or aborts the communicator
  std::vector<std::pair<std::string, int64_t>> entered;  // how many of each collective; by name
};

struct RasMissingRank {
  RasRank rank;
  // Its process does not answer; otherwise the process is not in the communicator, any more or yet.
  bool unresponsive = false;
};

struct RasCommunicator {
  std::string hash;
  int64_t size = 0;
  std::vector<RasRank> ranks;
  std::vector<RasMissingRank> missing;
};

// ---- pure
[[nodiscard]] Result<std::vector<RasCommunicator>> ParseRasAnswer(std::string_view text);

// Which ranks are missing or behind, and in what. `world`: ranks of the round; in a communicator of that size NCCL's ranks
// are those of the round, in another one they are named with host and process. Empty if NCCL has no communicator.
[[nodiscard]] std::string DescribeRas(std::vector<RasCommunicator> communicators, int world);

// ---- the client
// The answer to STATUS. `address`: as in NCCL_RAS_ADDR, an IP address or localhost, and a port; empty: NCCL's default.
// Waits for `limit` at most, or until `stop`.
[[nodiscard]] Result<std::string> AskRas(const std::string& address, Milliseconds limit,
                                         const std::stop_token& stop);

// Whether a process of the answer descends from `ancestor`. On a host network, NCCL of another job may answer.
[[nodiscard]] bool HasProcessOf(pid_t ancestor, const std::vector<RasCommunicator>& communicators);

}  // namespace lockstep::launch
