#pragma once
// Reads the JSON dump of c10d's flight recorder about a process's collectives on a device. Pure.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/common/base/result.h"

namespace lockstep::train {

struct FlightTrace {
  // The position of the rank: the oldest unfinished collective of the newest group, or its newest collective
  // if all have ended.
  std::string collective;  // "nccl:all_reduce"
  int64_t sequence =
      0;  // counted alike on all ranks of a round: the rank with the lowest number delays the others
  std::string state;  // "scheduled", "started", "completed"
  std::string sizes;  // of the inputs: "[[1024,768]]"
  // The whole dump with corrected states (see flight_trace.cc).
  std::string json;
};

// `ended_before`, since 1970: every collective that began earlier has ended (comm::BrokenTrace). kNotFound: the
// dump contains no collective.
[[nodiscard]] Result<FlightTrace> ReadFlightTrace(std::string_view dump,
                                                  std::chrono::nanoseconds ended_before = {});

}  // namespace lockstep::train
