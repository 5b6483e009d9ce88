#pragma once
// The batches of a window that ranks claim, one after the other, instead of having them dealt: which there
// are, and when to claim no more, so that nobody waits for a slow rank's last one. Pure.

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/train/batch_math.h"

namespace lockstep::train {

struct Claim {
  int64_t step = 0;
  Slice places;  // among the samples of the step

  friend bool operator==(const Claim&, const Claim&) = default;
};

// All of a window, in the order in which they are claimed: those of its first step first. `counts` are the
// samples of each of its steps; a step is cut as `world` ranks would share it.
[[nodiscard]] std::vector<Claim> ClaimsOf(int64_t first_step, std::span<const int64_t> counts, int world);

// How many batches each rank does in a second. `told` is what each measured in the window, 0 where it had
// none; `before` is what was known, empty before the first window of a round. A rank that had none is taken
// for a little faster with each window, until it is tried again.
[[nodiscard]] std::vector<double> RatesAfter(std::span<const double> before, std::span<const double> told);

// Exactly one rank is: it claims whatever is left.
[[nodiscard]] bool IsFastest(std::span<const double> rates, int rank);

// Whether the rank, which holds `held` batches that it has not done, would do one more before the others
// were through with all that is `left`.
[[nodiscard]] bool IsWorthClaiming(std::span<const double> rates, int rank, int64_t held, int64_t left);

}  // namespace lockstep::train
