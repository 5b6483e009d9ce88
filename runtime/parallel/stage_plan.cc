#include "runtime/parallel/stage_plan.h"

#include <algorithm>

#include "runtime/common/base/result.h"

namespace lockstep::parallel {
namespace {

// Fills one stage after another up to the cost `limit`, leaving at least one layer for each following stage.
// If the result has fewer stages than requested, the limit is too low.
std::vector<LayerRange> Fill(std::span<const int64_t> costs, int stages, int64_t limit) {
  const int layers = static_cast<int>(costs.size());
  std::vector<LayerRange> ranges;
  int next = 0;
  while (static_cast<int>(ranges.size()) < stages) {
    const int left = stages - static_cast<int>(ranges.size()) - 1;
    LayerRange range{next, next};
    int64_t cost = 0;
    while (range.end < layers - left && cost + costs[static_cast<std::size_t>(range.end)] <= limit)
      cost += costs[static_cast<std::size_t>(range.end++)];
    if (range.begin == range.end) return {};
    ranges.push_back(range);
    next = range.end;
  }
  return next == layers ? ranges : std::vector<LayerRange>();
}

}  // namespace

std::optional<MeshCoordinate> Mesh::CoordinateOf(int rank) const {
  if (rank >= pipelines * stages) return std::nullopt;
  return MeshCoordinate{rank / stages, rank % stages};
}

std::vector<int> Mesh::RanksOf(int stage) const {
  std::vector<int> ranks;
  ranks.reserve(static_cast<std::size_t>(pipelines));
  for (int pipeline = 0; pipeline < pipelines; ++pipeline) ranks.push_back(RankOf({pipeline, stage}));
  return ranks;
}

Mesh MeshOf(int world, std::optional<int> stages, int layers) {
  const int wanted = std::min({stages.value_or(world), world, layers});
  return {stages.has_value() ? world / wanted : 1, wanted};
}

std::vector<LayerRange> DivideLayers(std::span<const int64_t> costs, int stages) {
  LOCKSTEP_CHECK(stages >= 1 && stages <= static_cast<int>(costs.size()), "each stage needs a layer");
  int64_t too_low = -1;
  int64_t enough = 0;
  for (const int64_t cost : costs) enough += cost;
  while (enough - too_low > 1) {
    const int64_t middle = too_low + (enough - too_low) / 2;
    (Fill(costs, stages, middle).empty() ? too_low : enough) = middle;
  }
  return Fill(costs, stages, enough);
}

}  // namespace lockstep::parallel
