#include "runtime/train/shards/shard_optimizer.h"

#include <ATen/ATen.h>

namespace lockstep::train {

std::vector<at::Tensor> SplitByPieces(const at::Tensor& flat, const Pieces& pieces) {
  std::vector<at::Tensor> views;
  views.reserve(pieces.size());
  int64_t begin = 0;
  for (const auto& [parameter, range] : pieces) {
    views.push_back(flat.detach().narrow(0, begin, range.size()));
    begin += range.size();
  }
  return views;
}

ShardOptimizer::ShardOptimizer(const api::OptimizerSpec& spec, const std::vector<ParameterSettings>& settings,
                               const Pieces& pieces, std::vector<at::Tensor> elements,
                               std::span<const at::Tensor> slots)
    : elements_(std::move(elements)) {
  std::vector<NamedTensor> named;
  std::vector<ParameterSettings> of_pieces;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    named.push_back({"", elements_[i]});
    of_pieces.push_back(settings[pieces[i].first]);
  }
  std::vector<at::Tensor> state;
  for (const at::Tensor& slot : slots) {
    for (at::Tensor& view : SplitByPieces(slot, pieces)) state.push_back(std::move(view));
  }
  optimizer_ = MakeOptimizer(spec, named, std::move(state), std::move(of_pieces));
}

void ShardOptimizer::Step(const std::vector<at::Tensor>& gradients, int64_t step, double learning_rate) {
  for (std::size_t i = 0; i < elements_.size(); ++i) elements_[i].mutable_grad() = gradients[i];
  optimizer_->Step(step, learning_rate);
  for (const at::Tensor& of_piece : elements_) of_piece.mutable_grad().reset();
}

}  // namespace lockstep::train
