#pragma once
// Assigns the layers of a model to ranks: which ranks form a pipeline, and which layers each stage has. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::parallel {

struct MeshCoordinate {
  int pipeline = 0;
  int stage = 0;

  friend bool operator==(const MeshCoordinate&, const MeshCoordinate&) = default;
};

// Parallel pipelines. The ranks of a pipeline are consecutive, so the stage replicas of a rank (the ranks of
// other pipelines with the same stage) are likely on other machines.
struct Mesh {
  int pipelines = 1;
  int stages = 1;

  [[nodiscard]] int RankOf(const MeshCoordinate& coordinate) const {
    return coordinate.pipeline * stages + coordinate.stage;
  }
  // Returns nothing for a rank that is left over and idle.
  [[nodiscard]] std::optional<MeshCoordinate> CoordinateOf(int rank) const;
  // The ranks that have a stage, in order.
  [[nodiscard]] std::vector<int> RanksOf(int stage) const;
};

// As many pipelines of `stages` as `world` ranks allow, with fewer stages if there are fewer ranks or layers.
// Without `stages`, one pipeline over all ranks.
[[nodiscard]] Mesh MeshOf(int world, std::optional<int> stages, int layers);

// Layers [begin, end).
struct LayerRange {
  int begin = 0;
  int end = 0;

  [[nodiscard]] bool Has(int layer) const { return begin <= layer && layer < end; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Contiguous non-empty ranges that minimise the cost of the most expensive stage; among equal solutions the
// one with fuller earlier stages. `stages` must not exceed the number of costs.
[[nodiscard]] std::vector<LayerRange> DivideLayers(std::span<const int64_t> costs, int stages);

}  // namespace lockstep::parallel
