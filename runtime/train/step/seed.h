#pragma once
// Random seeds as a function of where they are used, never of what a process did before: a repeated step
// draws the same numbers in any world and process.

#include <cstddef>
#include <cstdint>

#include "runtime/common/base/mix.h"

namespace lockstep::train {

// For the micro-batch of `step` that begins at position `begin` of the step's samples (for dropout and the
// like).
[[nodiscard]] inline uint64_t MicroBatchSeed(int64_t seed, int64_t step, int64_t begin) {
  return MixBits(static_cast<uint64_t>(seed), static_cast<uint64_t>(step), static_cast<uint64_t>(begin));
}

// For the nth device of a process whose model has layers on several.
[[nodiscard]] inline uint64_t SeedOfDevice(uint64_t seed, std::size_t device) {
  return device == 0 ? seed : MixBits(seed, device, 0);
}

}  // namespace lockstep::train
