#include "runtime/models/model.h"

#include <torch/torch.h>

#include "runtime/models/cnn.h"
#include "runtime/models/mlp.h"

namespace lockstep::models {

Result<std::shared_ptr<Model>> MakeModel(const api::ModelSpec& spec, const ModelInput& input, int64_t seed) {
  torch::manual_seed(static_cast<uint64_t>(seed));
  switch (spec.name) {
    case api::ModelName::kMlp: return std::shared_ptr<Model>(std::make_shared<Mlp>(spec.mlp, input));
    case api::ModelName::kCnn: return MakeCnn(spec.cnn, input);
    default:
      return Error{ErrorCode::kUnsupported,
                   "spec.training.model.name: " + std::string(api::NameOf(spec.name)) +
                       " is not implemented yet; use mlp or cnn"};
  }
}

LossSums ClassificationLoss(const at::Tensor& logits, const at::Tensor& targets) {
  LossSums sums;
  sums.loss = at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum);
  sums.correct = logits.detach().argmax(1).eq(targets).sum().item<int64_t>();
  sums.count = targets.size(0);
  return sums;
}

}  // namespace lockstep::models
