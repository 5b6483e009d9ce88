#include "runtime/train/step/batch_math.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace lockstep::train {
namespace {

constexpr int64_t kPiecesOfAStep = 16;

int64_t CeilDivide(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The positions of all ranks.
std::vector<Slice> PositionsOf(int64_t count, std::span<const double> speeds,
                               const MicroBatchPolicy& policy) {
  if (!policy.same_in_any_world) return SlicesBySpeed(count, speeds);
  std::vector<Slice> positions = SlicesBySpeed(CeilDivide(count, *policy.size), speeds);
  for (Slice& slice : positions)
    slice = {std::min(count, slice.begin * *policy.size), std::min(count, slice.end * *policy.size)};
  return positions;
}

// Rounds down to whole positions; the remaining ones go one by one to the rank that would end first with one
// more.
std::vector<int64_t> CountsBySpeed(int64_t count, std::span<const double> speeds) {
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  std::vector<int64_t> counts;
  for (const double speed : speeds)
    counts.push_back(static_cast<int64_t>(std::floor(static_cast<double>(count) * speed / all)));
  const auto end_with_one_more = [&](std::size_t i) {
    return std::pair(static_cast<double>(counts[i] + 1) / speeds[i], i);
  };
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>,
                      std::greater<>>
      next;
  for (std::size_t i = 0; i < counts.size(); ++i) next.push(end_with_one_more(i));
  for (int64_t left = count - std::accumulate(counts.begin(), counts.end(), int64_t{0}); left > 0; --left) {
    const std::size_t i = next.top().second;
    next.pop();
    ++counts[i];
    next.push(end_with_one_more(i));
  }
  return counts;
}

// A rank without a position could not be measured again. Its position is taken from the rank that ends last.
void GiveEachOne(std::vector<int64_t>& counts, std::span<const double> speeds) {
  const auto end = [&](std::size_t i) {
    return counts[i] > 1 ? static_cast<double>(counts[i]) / speeds[i] : 0;
  };
  for (int64_t& none : counts) {
    if (none > 0) continue;
    std::size_t last = 0;
    for (std::size_t i = 1; i < counts.size(); ++i) last = end(i) > end(last) ? i : last;
    --counts[last];
    none = 1;
  }
}

}  // namespace

std::vector<Slice> SlicesBySpeed(int64_t count, std::span<const double> speeds) {
  std::vector<int64_t> counts = CountsBySpeed(count, speeds);
  if (count >= static_cast<int64_t>(counts.size())) GiveEachOne(counts, speeds);
  std::vector<Slice> slices;
  int64_t begin = 0;
  for (const int64_t mine : counts) {
    slices.push_back({begin, begin + mine});
    begin += mine;
  }
  return slices;
}

std::vector<Slice> MicroBatches(Slice slice, std::optional<int64_t> size) {
  std::vector<Slice> pieces;
  const int64_t step = size.value_or(std::max<int64_t>(1, slice.size()));
  for (int64_t begin = slice.begin; begin < slice.end; begin += step) {
    pieces.push_back({begin, std::min(begin + step, slice.end)});
  }
  return pieces;
}

MicroBatchPolicy MicroBatchPolicyOf(const api::TrainingSpec& spec) {
  const bool same = spec.determinism == api::Determinism::kWorld || api::DividesLayers(spec.strategy);
  if (same && !spec.micro_batch_size.has_value())
    return {CeilDivide(spec.global_batch_size, kPiecesOfAStep), true};
  return {spec.micro_batch_size, same};
}

RankShare ShareOf(int64_t count, int rank, std::span<const double> speeds, const MicroBatchPolicy& policy) {
  const std::vector<Slice> positions = PositionsOf(count, speeds, policy);
  RankShare share;
  share.positions = positions.at(static_cast<std::size_t>(rank));
  share.pieces = MicroBatches(share.positions, policy.size);
  for (const Slice& of_rank : positions) {
    const int64_t size = policy.size.value_or(std::max<int64_t>(1, of_rank.size()));
    share.micro_batches.push_back(CeilDivide(of_rank.size(), size));
  }
  return share;
}

}  // namespace lockstep::train
