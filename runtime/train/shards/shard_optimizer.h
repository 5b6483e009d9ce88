#pragma once
// Updates the elements of one shard. Views of them and of their optimizer state are made once, not in each
// step. Step thread. LibTorch's exceptions pass through.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/common/api/training_spec.h"
#include "runtime/train/shards/shard_plan.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

// Which elements of which parameters, by index, a shard has (HeldShards::PiecesOf).
using Pieces = std::vector<std::pair<std::size_t, Range>>;

// Views of a flat tensor that has the elements of all pieces, one piece after another.
[[nodiscard]] std::vector<at::Tensor> SplitByPieces(const at::Tensor& flat, const Pieces& pieces);

class ShardOptimizer {
 public:
  // `parameters` are all of them, whole: their names and shapes say how a piece is updated. `elements` are to
  // be updated: one flat tensor per piece. `slots` are flat and have the optimizer's state of all pieces.
  // Unless the optimizer is element-wise, each piece must be a whole parameter.
  ShardOptimizer(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
                 const Pieces& pieces, const std::vector<at::Tensor>& elements,
                 std::span<const at::Tensor> slots);

  // `gradients` has one flat tensor per piece. `step` starts at 0.
  void Step(const std::vector<at::Tensor>& gradients, int64_t step, double learning_rate);

 private:
  std::vector<at::Tensor> elements_;  // those of a whole parameter have its shape
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace lockstep::train
