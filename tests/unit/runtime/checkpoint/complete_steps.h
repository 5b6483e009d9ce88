#pragma once
// Which checkpoints a store has.

#include <cstdint>
#include <vector>

#include "runtime/checkpoint/stored_checkpoints.h"

namespace lockstep::checkpoint {

// Newest first.
inline std::vector<int64_t> CompleteSteps(ObjectStore& store) {
  const auto stored = ListSteps(store);
  LOCKSTEP_CHECK(stored.ok(), stored.ok() ? "" : stored.error().ToString());
  std::vector<int64_t> steps;
  for (const StoredStep& each : *stored) {
    if (each.has_manifest) steps.push_back(each.step);
  }
  return steps;
}

}  // namespace lockstep::checkpoint
