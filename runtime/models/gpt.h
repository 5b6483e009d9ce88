#pragma once
// A token decoder like GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019):
// pre-norm blocks, learned positions, the output tied to the token embedding. Parameters are named and
// initialised as in nanoGPT: normal with standard deviation 0.02, the last projection of each residual branch
// scaled by 1/sqrt(2 * layers).

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include "runtime/models/model.h"

namespace lockstep::models {

class Gpt final : public Model {
 public:
  explicit Gpt(const api::GptSpec& spec);
  // int64 [n, length] → [n, length, vocabulary]; length is at most contextLength.
  [[nodiscard]] std::vector<Layer> Layers() override;
  [[nodiscard]] at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const override;

 private:
  const double dropout_;
  torch::nn::Embedding tokens_ = nullptr;     // wte
  torch::nn::Embedding positions_ = nullptr;  // wpe
  torch::nn::ModuleList blocks_;              // h
  torch::nn::LayerNorm norm_ = nullptr;       // ln_f
};

// kInvalidArgument if samples are not sequences of tokens.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeGpt(const api::GptSpec& spec, const ModelInput& input);

}  // namespace lockstep::models
