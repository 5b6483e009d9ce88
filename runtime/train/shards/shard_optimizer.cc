#include "runtime/train/shards/shard_optimizer.h"

#include <ATen/ATen.h>

#include "runtime/common/base/result.h"

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

ShardOptimizer::ShardOptimizer(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
                               const Pieces& pieces, const std::vector<at::Tensor>& elements,
                               std::span<const at::Tensor> slots) {
  std::vector<NamedTensor> named;
  std::vector<ParameterSettings> settings;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const NamedTensor& whole = parameters[pieces[i].first];
    const bool is_whole = elements[i].numel() == whole.tensor.numel();
    LOCKSTEP_CHECK(is_whole || api::IsElementwise(spec.name), "the optimizer needs whole parameters");
    elements_.push_back(is_whole ? elements[i].view(whole.tensor.sizes()) : elements[i]);
    named.push_back({"", elements_.back()});
    settings.push_back(SettingsOf(spec, whole));
  }
  std::vector<at::Tensor> state;
  for (const at::Tensor& slot : slots) {
    const std::vector<at::Tensor> views = SplitByPieces(slot, pieces);
    for (std::size_t i = 0; i < views.size(); ++i) state.push_back(views[i].view(elements_[i].sizes()));
  }
  optimizer_ = MakeOptimizer(spec, named, std::move(state), std::move(settings));
}

void ShardOptimizer::Step(const std::vector<at::Tensor>& gradients, int64_t step, double learning_rate) {
  for (std::size_t i = 0; i < elements_.size(); ++i)
    elements_[i].mutable_grad() = gradients[i].view(elements_[i].sizes());
  optimizer_->Step(step, learning_rate);
  for (const at::Tensor& of_piece : elements_) of_piece.mutable_grad().reset();
}

}  // namespace lockstep::train
