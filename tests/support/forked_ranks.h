#pragma once
// The ranks of one round as forked processes of a test, and how they connect on this machine.

#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "tests/support/forked_process.h"

namespace lockstep::testing {

// Only ends hangs.
inline constexpr std::chrono::seconds kPatience{300};
// A wait that ends by this limit is a failure of the test.
inline constexpr std::chrono::seconds kCollectiveLimit{240};

// Connects the ranks: holds the listener of rank 0, which the test opens so that every child knows its port.
struct RoundConnector {
  comm::Listener listener = std::move(comm::Listener::Open("127.0.0.1")).value();
  int port = listener.port();

  Result<std::shared_ptr<comm::Communicator>> Enter(int64_t round, int rank, int world,
                                                    const comm::DeviceUse& device = {},
                                                    std::chrono::milliseconds limit = kCollectiveLimit,
                                                    const std::string& address = "127.0.0.1",
                                                    int subgroup_size = 0) {
    const comm::Place place{.round = round,
                            .rank = rank,
                            .world = world,
                            .address = address,
                            .store_host = "127.0.0.1",
                            .store_port = port,
                            .subgroup_size = subgroup_size};
    return comm::Communicator::Connect(place, std::move(listener), {.collective = limit}, device);
  }
  Result<std::shared_ptr<comm::Communicator>> EnterWithSubgroups(int64_t round, int rank, int world,
                                                                 int subgroup_size) {
    return Enter(round, rank, world, {}, kCollectiveLimit, "127.0.0.1", subgroup_size);
  }
  // Connects as if on that host of a cluster; hosts are numbered from 1.
  Result<std::shared_ptr<comm::Communicator>> EnterOnHost(int host, int64_t round, int rank, int world) {
    return Enter(round, rank, world, {}, kCollectiveLimit, "127.0.0." + std::to_string(host));
  }
};

using RankBody = std::function<int(int rank, LineChannel& parent)>;

inline std::vector<ForkedProcess> StartRanks(int world, const RankBody& body) {
  std::vector<ForkedProcess> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&body, rank](LineChannel& parent) { return body(rank, parent); });
  }
  return ranks;
}

inline void ExpectAllSucceed(std::vector<ForkedProcess>& ranks) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank].Wait(kPatience), 0) << "rank " << rank;
  }
}

// Inside a child: an assertion that ends it.
#define REQUIRE(condition)                                                               \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      return 1;                                                                          \
    }                                                                                    \
  } while (false)

}  // namespace lockstep::testing
