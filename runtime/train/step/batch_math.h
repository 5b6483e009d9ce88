#pragma once
// Divides the global batch of a step among the ranks. The batch does not depend on the world size, the shares
// do. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/data/slice.h"

namespace lockstep::train {

using data::Slice;
using data::SliceOf;

// Divides `count` positions into contiguous shares, one per entry of `speeds`, so that the rank that ends
// last ends as early as possible at these speeds. Each rank gets at least one position if there are enough.
// With equal speeds the result is that of SliceOf.
[[nodiscard]] std::vector<Slice> SlicesBySpeed(int64_t count, std::span<const double> speeds);

// Cuts the slice into pieces of `size`; the last one is smaller if `size` does not divide the slice. Without
// `size`, the slice is one piece.
[[nodiscard]] std::vector<Slice> MicroBatches(Slice slice, std::optional<int64_t> size);

// How a step is cut into micro-batches.
struct MicroBatchPolicy {
  std::optional<int64_t> size;  // most samples of one
  // True: the step is cut, and each rank gets whole pieces, so the micro-batches are the same in any world.
  // Needs `size`. False: each rank cuts its own share.
  bool same_in_any_world = false;
};

// Without spec.microBatchSize, `determinism: World` cuts a full step into 16 pieces: ranks beyond 16 have
// nothing to do, and more pieces would cost more passes. `pipeline` and `hybrid` do the same, because their
// stages need several micro-batches to overlap; random numbers are then the same in any world, too.
[[nodiscard]] MicroBatchPolicy MicroBatchPolicyOf(const api::TrainingSpec& spec);

// The share of one rank in a step. `speeds` has one entry per rank of the round.
struct RankShare {
  std::vector<Slice> pieces;           // its micro-batches, in order
  Slice positions;                     // all of them together
  std::vector<int64_t> micro_batches;  // how many each rank has
};
[[nodiscard]] RankShare ShareOf(int64_t count, int rank, std::span<const double> speeds,
                                const MicroBatchPolicy& policy);

}  // namespace lockstep::train
