#pragma once
// Positions among the samples of a step or of a data set, and their division among ranks. Pure.

#include <algorithm>
#include <cstdint>

namespace lockstep::data {

// Positions [begin, end).
struct Slice {
  int64_t begin = 0;
  int64_t end = 0;

  [[nodiscard]] int64_t size() const { return end - begin; }
  friend bool operator==(const Slice&, const Slice&) = default;
};

// The rank's contiguous share of `count` positions. Shares differ by at most one, and the larger ones come
// first. A share is empty if there are more ranks than positions.
[[nodiscard]] inline Slice SliceOf(int64_t count, int64_t rank, int64_t world) {
  const int64_t share = count / world;
  const int64_t remainder = count % world;
  const int64_t begin = rank * share + std::min(rank, remainder);
  return {begin, begin + share + (rank < remainder ? 1 : 0)};
}

}  // namespace lockstep::data
