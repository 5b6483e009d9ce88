#include "runtime/parallel/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace lockstep::parallel {
namespace {

using ::testing::ElementsAre;

TEST(MeshOf, MakesOnePipelineOverAllRanksWithoutANumberOfStages) {
  const Mesh mesh = MeshOf(3, std::nullopt, 10);
  EXPECT_EQ(mesh.pipelines, 1);
  EXPECT_EQ(mesh.stages, 3);
  EXPECT_EQ(mesh.CoordinateOf(2), (MeshCoordinate{0, 2}));
}

TEST(MeshOf, HasNoMoreStagesThanLayers) {
  const Mesh mesh = MeshOf(5, std::nullopt, 3);
  EXPECT_EQ(mesh.stages, 3);
  EXPECT_EQ(mesh.pipelines, 1);
  EXPECT_EQ(mesh.CoordinateOf(3), std::nullopt);
}

TEST(MeshOf, LeavesRanksIdleThatMakeNoPipeline) {
  const Mesh mesh = MeshOf(5, 2, 10);
  EXPECT_EQ(mesh.pipelines, 2);
  EXPECT_EQ(mesh.CoordinateOf(3), (MeshCoordinate{1, 1}));
  EXPECT_EQ(mesh.CoordinateOf(4), std::nullopt);
}

TEST(MeshOf, HasFewerStagesWhereThereAreFewerRanks) {
  EXPECT_EQ(MeshOf(1, 4, 10).stages, 1);
  EXPECT_EQ(MeshOf(3, 4, 10).stages, 3);
}

TEST(Mesh, PutsTheStageReplicasApart) {
  const Mesh mesh = MeshOf(6, 2, 10);
  EXPECT_THAT(mesh.RanksOf(0), ElementsAre(0, 2, 4));
  EXPECT_THAT(mesh.RanksOf(1), ElementsAre(1, 3, 5));
  for (int rank = 0; rank < 6; ++rank) EXPECT_EQ(mesh.RankOf(*mesh.CoordinateOf(rank)), rank);
}

int64_t CostOf(const std::vector<int64_t>& costs, const LayerRange& range) {
  return std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, int64_t{0});
}

int64_t Most(const std::vector<int64_t>& costs, const std::vector<LayerRange>& ranges) {
  int64_t most = 0;
  for (const LayerRange& range : ranges) most = std::max(most, CostOf(costs, range));
  return most;
}

// The minimum over all divisions.
int64_t Least(const std::vector<int64_t>& costs, int first, int stages) {
  const int layers = static_cast<int>(costs.size());
  if (stages == 1) return CostOf(costs, {first, layers});
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int end = first + 1; end <= layers - stages + 1; ++end)
    least = std::min(least, std::max(CostOf(costs, {first, end}), Least(costs, end, stages - 1)));
  return least;
}

TEST(DivideLayers, PutsALargeLayerAlone) {
  EXPECT_THAT(DivideLayers(std::vector<int64_t>{1, 1, 10, 1, 1}, 3),
              ElementsAre(LayerRange{0, 2}, LayerRange{2, 3}, LayerRange{3, 5}));
}

TEST(DivideLayers, IsAsEvenAsItCanBe) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> costs(1 + random() % 9);
    for (int64_t& cost : costs) cost = static_cast<int64_t>(random() % 20);
    for (int stages = 1; stages <= static_cast<int>(costs.size()); ++stages) {
      const std::vector<LayerRange> ranges = DivideLayers(costs, stages);
      ASSERT_EQ(static_cast<int>(ranges.size()), stages);
      int next = 0;
      for (const LayerRange& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GT(range.end, range.begin);
        next = range.end;
      }
      EXPECT_EQ(next, static_cast<int>(costs.size()));
      EXPECT_EQ(Most(costs, ranges), Least(costs, 0, stages));
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
