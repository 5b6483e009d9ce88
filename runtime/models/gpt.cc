#include "runtime/models/gpt.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <cmath>

namespace lockstep::models {
namespace {

constexpr double kDeviation = 0.02;

// Of an input of three dimensions, torch::nn::Linear's own forward adds the bias in a separate kernel, which took
// an eighth of a step of GPT-2 on an H200.
at::Tensor Apply(const torch::nn::Linear& linear, const at::Tensor& x) {
  return at::linear(x, linear->weight, linear->bias);
}

class AttentionImpl final : public torch::nn::Module {
 public:
  explicit AttentionImpl(const api::GptSpec& spec)
      : heads_(spec.heads),
        dropout_(spec.dropout),
        inputs_(register_module("c_attn", torch::nn::Linear(spec.embedding_size, 3 * spec.embedding_size))),
        projection_(register_module("c_proj", torch::nn::Linear(spec.embedding_size, spec.embedding_size))) {}

  at::Tensor forward(const at::Tensor& x) {
    const std::vector<at::Tensor> parts = Apply(inputs_, x).chunk(3, -1);
    const auto by_head = [&](const at::Tensor& part) {
      return part.unflatten(-1, {heads_, -1}).transpose(1, 2);
    };
    const double dropout = is_training() ? dropout_ : 0.0;
    const at::Tensor seen = at::scaled_dot_product_attention(
        by_head(parts[0]), by_head(parts[1]), by_head(parts[2]), {}, dropout, /*is_causal=*/true);
    return at::dropout(Apply(projection_, seen.transpose(1, 2).flatten(2)), dropout_, is_training());
  }

 private:
  const int64_t heads_;
  const double dropout_;
  torch::nn::Linear inputs_;  // queries, keys and values of all heads
  torch::nn::Linear projection_;
};
TORCH_MODULE(Attention);

class FeedForwardImpl final : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const api::GptSpec& spec)
      : dropout_(spec.dropout),
        hidden_(register_module("c_fc", torch::nn::Linear(spec.embedding_size, 4 * spec.embedding_size))),
        projection_(
            register_module("c_proj", torch::nn::Linear(4 * spec.embedding_size, spec.embedding_size))) {}

  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(Apply(projection_, at::gelu(Apply(hidden_, x), "tanh")), dropout_, is_training());
  }

 private:
  const double dropout_;
  torch::nn::Linear hidden_;
  torch::nn::Linear projection_;
};
TORCH_MODULE(FeedForward);

torch::nn::LayerNorm Norm(const api::GptSpec& spec) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({spec.embedding_size}));
}

class BlockImpl final : public torch::nn::Module {
 public:
  explicit BlockImpl(const api::GptSpec& spec)
      : attention_norm_(register_module("ln_1", Norm(spec))),
        attention_(register_module("attn", Attention(spec))),
        feed_forward_norm_(register_module("ln_2", Norm(spec))),
        feed_forward_(register_module("mlp", FeedForward(spec))) {}

  at::Tensor forward(const at::Tensor& inputs) {
    const at::Tensor x = inputs + attention_->forward(attention_norm_->forward(inputs));
    return x + feed_forward_->forward(feed_forward_norm_->forward(x));
  }

 private:
  torch::nn::LayerNorm attention_norm_;
  Attention attention_;
  torch::nn::LayerNorm feed_forward_norm_;
  FeedForward feed_forward_;
};
TORCH_MODULE(Block);

void InitialiseGpt(torch::nn::Module& model, int64_t layers) {
  const at::NoGradGuard no_grad;
  const double residual = kDeviation / std::sqrt(2.0 * static_cast<double>(layers));
  for (const auto& parameter : model.named_parameters()) {
    const std::string& name = parameter.key();
    if (name.ends_with("bias")) {
      parameter.value().zero_();
    } else if (parameter.value().dim() == 2) {  // the norms begin with ones
      parameter.value().normal_(0, name.ends_with("c_proj.weight") ? residual : kDeviation);
    }
  }
}

Error DoesNotFit(const std::string& field, const std::string& problem) {
  return {ErrorCode::kInvalidArgument, "spec.training.model." + field + ": " + problem};
}

}  // namespace

Gpt::Gpt(const api::GptSpec& spec)
    : dropout_(spec.dropout),
      tokens_(register_module("wte", torch::nn::Embedding(spec.vocabulary_size, spec.embedding_size))),
      positions_(register_module("wpe", torch::nn::Embedding(spec.context_length, spec.embedding_size))) {
  for (int64_t layer = 0; layer < spec.layers; ++layer) blocks_->push_back(Block(spec));
  register_module("h", blocks_);
  norm_ = register_module("ln_f", Norm(spec));
  InitialiseGpt(*this, spec.layers);
}

std::vector<Layer> Gpt::Layers() {
  const auto embedding = [this](const at::Tensor& inputs) {
    const at::Tensor places = at::arange(inputs.size(1), inputs.options());
    const at::Tensor x = tokens_->forward(inputs) + positions_->forward(places);
    return at::dropout(x, dropout_, is_training());
  };
  std::vector<Layer> layers = {{embedding, {tokens_.ptr(), positions_.ptr()}}};
  for (const auto& block : *blocks_) {
    const auto forward = [block = block->as<Block>()](const at::Tensor& x) { return block->forward(x); };
    layers.push_back({forward, {block}});
  }
  const auto output = [this](const at::Tensor& x) { return at::linear(norm_->forward(x), tokens_->weight); };
  layers.push_back({output, {norm_.ptr(), tokens_.ptr()}});
  return layers;
}

at::Tensor Gpt::LossSum(const at::Tensor& outputs, const at::Tensor& targets) const {
  if (!outputs.is_cuda()) return Model::LossSum(outputs, targets);
  // Of runtime/cuda/cross_entropy.cc, which is loaded before there is a tensor on a GPU.
  static const auto fused =
      c10::Dispatcher::singleton().findSchema({"lockstep::cross_entropy_sum", /*overload_name=*/""});
  if (!fused.has_value()) return Model::LossSum(outputs, targets);
  const at::Tensor sum = fused->typed<at::Tensor(const at::Tensor&, const at::Tensor&)>().call(
      outputs.flatten(0, -2), targets.flatten());
  return sum / targets.size(-1);
}

Result<std::shared_ptr<Model>> MakeGpt(const api::GptSpec& spec, const ModelInput& input) {
  if (input.sample_shape.size() != 1 || input.sample_shape.front() > spec.context_length)
    return DoesNotFit("name", "gpt needs sequences of contextLength tokens at most; use data.format tokens");
  if (input.classes > spec.vocabulary_size) {
    return DoesNotFit("gpt.vocabularySize", std::to_string(spec.vocabulary_size) + " is less than the " +
                                                std::to_string(input.classes) + " tokens of the data");
  }
  return std::shared_ptr<Model>(std::make_shared<Gpt>(spec));
}

}  // namespace lockstep::models
