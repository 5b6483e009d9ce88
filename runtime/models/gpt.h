#pragma once
// A decoder of tokens as GPT-2 (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019):
// norms before each part, learned positions, the output tied to the token embedding. Parameters are named as
// in nanoGPT and initialised as there: normal with 0.02, the last projection of each part scaled by
// 1/sqrt(2 * layers).

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>

#include "runtime/models/model.h"

namespace lockstep::models {

class Gpt final : public Model {
 public:
  explicit Gpt(const api::GptSpec& spec);
  // int64 [n, length] → [n, length, vocabulary]; length is contextLength at most.
  [[nodiscard]] std::vector<Layer> Layers() override;

 private:
  const double dropout_;
  torch::nn::Embedding tokens_ = nullptr;     // wte
  torch::nn::Embedding positions_ = nullptr;  // wpe
  torch::nn::ModuleList blocks_;              // h
  torch::nn::LayerNorm norm_ = nullptr;       // ln_f
};

// Refuses samples that are no sequences of tokens.
[[nodiscard]] Result<std::shared_ptr<Model>> MakeGpt(const api::GptSpec& spec, const ModelInput& input);

}  // namespace lockstep::models
