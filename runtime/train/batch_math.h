#pragma once
// How the global batch of a step is divided: the batch does not depend on the world, the shares do. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

// Places [begin, end) among the samples of a step or of a data set.
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// The rank's contiguous share of `count` places. Shares differ by one at most, the larger ones come first;
// empty where there are more ranks than places.
[[nodiscard]] Slice SliceOf(int64_t count, int rank, int world);

// `count` places in contiguous shares, one for each of `speeds`, so that whoever ends last, at these speeds,
// ends as early as possible; but nobody has none where there are enough. Equal speeds: as SliceOf.
[[nodiscard]] std::vector<Slice> SlicesBySpeed(int64_t count, std::span<const double> speeds);

// The slice in pieces of `size`, the last one smaller where it does not divide; one piece where `size` is
// absent.
[[nodiscard]] std::vector<Slice> MicroBatches(Slice slice, std::optional<int64_t> size);

// How a step is cut into micro-batches.
struct Cutting {
  std::optional<int64_t> size;  // most samples of one
  // The same ones in any world: the step is cut, and each rank gets some of the pieces, the whole of a piece
  // or nothing. Otherwise each rank cuts its own share. Needs `size`.
  bool same_in_any_world = false;
};

// Without spec.microBatchSize, `determinism: World` cuts a full step into 16 pieces: ranks beyond those have
// nothing to do, and more pieces cost more passes. So do `pipeline` and `hybrid`, for whose stages there must
// be something to pass on; and random numbers are then the same in any world.
[[nodiscard]] Cutting CuttingOf(const api::TrainingSpec& spec);

// What one rank of a round does in a step; `speeds` are of all its ranks.
struct RankShare {
  std::vector<Slice> pieces;           // its micro-batches, in order
  Slice places;                        // all of them together
  std::vector<int64_t> micro_batches;  // how many each rank has
};
[[nodiscard]] RankShare ShareOf(int64_t count, int rank, std::span<const double> speeds,
                                const Cutting& cutting);

}  // namespace lockstep::train
