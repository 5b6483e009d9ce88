#pragma once
// Random numbers as a function of where they are used, never of what a process did before: a step that is
// repeated, in another world or process, draws the same. Pure.

#include <cstdint>

#include "runtime/common/base/mix.h"

namespace lockstep::train {

// For the micro-batch of `step` that begins at place `begin` of the step's samples (dropout and the like).
[[nodiscard]] inline uint64_t MicroBatchSeed(int64_t seed, int64_t step, int64_t begin) {
  return MixBits(static_cast<uint64_t>(seed), static_cast<uint64_t>(step), static_cast<uint64_t>(begin));
}

}  // namespace lockstep::train
