#pragma once
// Where the layers of a model are, when they are divided over ranks: which ranks form a pipeline, and which
// layers each stage has. Pure.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::parallel {

struct MeshPlace {
  int pipeline = 0;
  int stage = 0;

  friend bool operator==(const MeshPlace&, const MeshPlace&) = default;
};

// Pipelines side by side. The ranks of a pipeline follow one another, so that the twins of a rank, which have
// the same stage of the others, are likely on other machines.
struct Mesh {
  int pipelines = 1;
  int stages = 1;

  [[nodiscard]] int RankOf(const MeshPlace& place) const { return place.pipeline * stages + place.stage; }
  // Nothing: the rank is left over, and idle.
  [[nodiscard]] std::optional<MeshPlace> PlaceOf(int rank) const;
  // The ranks that have a stage, in order.
  [[nodiscard]] std::vector<int> RanksOf(int stage) const;
};

// As many pipelines of `stages` as `world` ranks allow; fewer stages where there are fewer ranks, or layers.
// Without `stages` one pipeline over all ranks.
[[nodiscard]] Mesh MeshOf(int world, std::optional<int> stages, int layers);

// Layers [begin, end).
struct LayerRange {
  int begin = 0;
  int end = 0;

  [[nodiscard]] bool Has(int layer) const { return begin <= layer && layer < end; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// Contiguous ranges, none of them empty, so that the most costly stage costs as little as possible; of equal
// ones that whose stages before it are fuller. `stages` are as many as there are costs at most.
[[nodiscard]] std::vector<LayerRange> DivideLayers(std::span<const int64_t> costs, int stages);

}  // namespace lockstep::parallel
