#include "runtime/train/batch_math.h"

#include <algorithm>

namespace lockstep::train {
namespace {

constexpr int64_t kPiecesOfAStep = 16;

int64_t CeilDivide(int64_t count, int64_t size) { return (count + size - 1) / size; }

Slice PlacesOf(int64_t count, int rank, int world, const Cutting& cutting) {
  if (!cutting.same_in_any_world) return SliceOf(count, rank, world);
  const Slice pieces = SliceOf(CeilDivide(count, *cutting.size), rank, world);
  return {std::min(count, pieces.begin * *cutting.size), std::min(count, pieces.end * *cutting.size)};
}

}  // namespace

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

Cutting CuttingOf(const api::TrainingSpec& spec) {
  const bool same = spec.determinism == api::Determinism::kWorld;
  if (same && !spec.micro_batch_size.has_value())
    return {CeilDivide(spec.global_batch_size, kPiecesOfAStep), true};
  return {spec.micro_batch_size, same};
}

RankShare ShareOf(int64_t count, int rank, int world, const Cutting& cutting) {
  RankShare share;
  share.places = PlacesOf(count, rank, world, cutting);
  share.pieces = MicroBatches(share.places, cutting.size);
  for (int other = 0; other < world; ++other) {
    const Slice places = PlacesOf(count, other, world, cutting);
    const int64_t size = cutting.size.value_or(std::max<int64_t>(1, places.size()));
    share.micro_batches.push_back(CeilDivide(places.size(), size));
  }
  return share;
}

}  // namespace lockstep::train
