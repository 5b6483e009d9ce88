#pragma once
// The batches of a window under `strategy: async`, which ranks claim one after another instead of getting
// fixed shares. Lists the batches and decides when a rank should claim no more, so that the others do not
// wait for a slow rank's last batch. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/train/step/batch_math.h"

namespace lockstep::train {

struct Claim {
  int64_t step = 0;
  Slice positions;  // among the samples of the step

  friend bool operator==(const Claim&, const Claim&) = default;
};

// All batches of a window in the order in which they are claimed, those of the first step first. `counts` has
// the number of samples of each step. Each step is cut as `world` ranks would share it.
[[nodiscard]] std::vector<Claim> ClaimsOf(int64_t first_step, std::span<const int64_t> counts, int world);

// Batches per second of each rank. `measured` is each rank's rate in the last window, 0 if it had no batch;
// `before` has the rates known until then and is empty before the first window of a round. The rate of a rank
// without a batch is raised a little with each window, until the rank is tried again.
[[nodiscard]] std::vector<double> RatesAfter(std::span<const double> before,
                                             std::span<const double> measured);

// True for exactly one rank, which claims whatever is left.
[[nodiscard]] bool IsFastest(std::span<const double> rates, int rank);

// Whether this rank, which holds `held` unfinished batches, would finish one more before the other ranks
// finish all `left` batches.
[[nodiscard]] bool IsWorthClaiming(std::span<const double> rates, int rank, int64_t held, int64_t left);

}  // namespace lockstep::train
