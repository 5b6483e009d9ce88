#pragma once
// What c10d's flight recorder kept of a process's collectives on a device, as c10d dumps it. Pure.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::train {

struct FlightTrace {
  // Where the rank is: the oldest collective of the newest group that had not ended, else its newest.
  std::string collective;  // "nccl:all_reduce"
  int64_t sequence = 0;    // all ranks of a round count alike: who is at the lowest holds up the others
  std::string state;       // "scheduled", "started", "completed"
  std::string sizes;       // of what goes in: "[[1024,768]]"
  // All of it, with the right states: see flight_trace.cc.
  std::string json;
};

// kNotFound: it kept no collective.
[[nodiscard]] Result<FlightTrace> ReadFlightTrace(std::string_view dump);

}  // namespace lockstep::train
