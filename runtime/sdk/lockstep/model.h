#pragma once
// A model of your own for Lockstep: derive from Model, and offer it in a library (plugin.h). It is
// single-device code: ranks, rounds and checkpoints are not its matter. One thread calls it.

#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

// What the data set's samples are.
struct ModelInput {
  std::vector<int64_t> sample_shape;  // without the batch dimension
  int64_t classes = 0;
};

// A part of a model that others follow: from what the part before it gave (the first: from the samples) it
// makes one tensor. `modules` are all whose parameters and buffers it uses; a parameter may be of several
// parts.
struct Layer {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
};

// Parameters are those registered with torch::nn::Module; their names are the names in a checkpoint. They are
// drawn in the constructor, from LibTorch's generator, which is seeded with spec.training.seed before: the
// same in each process.
class Model : public torch::nn::Module {
 public:
  // [n, …sample shape] → [n, classes]; of sequences [n, length] → [n, length, classes]. Override it, or
  // Layers.
  [[nodiscard]] virtual at::Tensor Forward(const at::Tensor& inputs) {
    at::Tensor x = inputs;
    for (const Layer& layer : Layers()) x = layer.forward(x);
    return x;
  }

  // The model as parts that follow one another, so that `strategy: pipeline` and `hybrid` can place them on
  // different ranks. Together they are Forward, and have all parameters and buffers. A part must not change
  // what it is given in place. None: the model cannot be divided.
  [[nodiscard]] virtual std::vector<Layer> Layers() { return {}; }

  // A differentiable scalar: the SUM over samples, as only the sum over all ranks knows the number to divide
  // by. Here: cross-entropy of class indices [n]; of sequences, [n, length], the mean over the places of
  // each.
  [[nodiscard]] virtual at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const {
    const at::Tensor sum = at::cross_entropy_loss(outputs.flatten(0, -2).to(at::kFloat), targets.flatten(),
                                                  {}, at::Reduction::Sum);
    return PlacesOf(targets) == 1 ? sum : sum / PlacesOf(targets);
  }

  // For an evaluation: samples that are right, of a sequence the share of its places.
  [[nodiscard]] virtual double CountRight(const at::Tensor& outputs, const at::Tensor& targets) const {
    return outputs.argmax(-1).eq(targets).sum().item<double>() / PlacesOf(targets);
  }

 private:
  static double PlacesOf(const at::Tensor& targets) {
    return targets.dim() == 1 ? 1 : static_cast<double>(targets.size(1));
  }
};

}  // namespace lockstep
