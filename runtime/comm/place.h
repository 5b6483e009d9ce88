#pragma once
// Where a rank is in a round, and how long it waits there. Pure.

#include <chrono>
#include <cstdint>
#include <string>

namespace lockstep::comm {

// The position of a rank in a round, and the address of the round's store.
struct Place {
  int64_t round = 0;
  int rank = 0;
  int world = 1;
  std::string address;     // to bind to; peers connect to it
  std::string store_host;  // where rank 0 serves the round's store
  int store_port = 0;
  int subgroup_size = 0;  // a divisor of world: Connect connects subgroups, too; 0: there are none
};

struct Deadlines {
  std::chrono::milliseconds connect{30'000};
  // Longer than any wait for a rank that is only late, so recovery never depends on it. It ends hangs that
  // were not detected.
  std::chrono::milliseconds collective;
};

}  // namespace lockstep::comm
