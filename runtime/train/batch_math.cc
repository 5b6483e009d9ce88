#include "runtime/train/batch_math.h"

#include <algorithm>

namespace lockstep::train {

Slice SliceOf(int64_t count, int rank, int world) {
  const int64_t share = count / world;
  const int64_t remainder = count % world;
  const int64_t begin = rank * share + std::min<int64_t>(rank, remainder);
  return {begin, begin + share + (rank < remainder ? 1 : 0)};
}

std::vector<Slice> MicroBatches(Slice slice, std::optional<int64_t> size) {
  std::vector<Slice> pieces;
  const int64_t step = size.value_or(std::max<int64_t>(1, slice.size()));
  for (int64_t begin = slice.begin; begin < slice.end; begin += step) {
    pieces.push_back({begin, std::min(begin + step, slice.end)});
  }
  return pieces;
}

}  // namespace lockstep::train
