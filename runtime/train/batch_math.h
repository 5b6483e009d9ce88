#pragma once
// How the global batch of a step is divided: the batch does not depend on the world, the shares do. Pure.

#include <cstdint>
#include <optional>
#include <vector>

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

// The slice in pieces of `size`, the last one smaller where it does not divide; one piece where `size` is
// absent.
[[nodiscard]] std::vector<Slice> MicroBatches(Slice slice, std::optional<int64_t> size);

}  // namespace lockstep::train
