#pragma once
// A custom model for Lockstep: derive from Model, and export the class from a library (plugin.h). A model is
// single-device code; Lockstep handles ranks, rounds and checkpoints. One thread calls it.

#include <ATen/ops/cross_entropy_loss.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep {

// The shape of the data set's samples.
struct ModelInput {
  std::vector<int64_t> sample_shape;  // without the batch dimension
  int64_t classes = 0;
};

// A part of a model that other parts follow. It computes one tensor from the output of the part before it, or
// from the samples. `modules` are all modules whose parameters and buffers it uses; several parts may share a
// parameter.
struct Layer {
  std::function<at::Tensor(const at::Tensor&)> forward;
  std::vector<std::shared_ptr<torch::nn::Module>> modules;
};

// The parameters are those registered with torch::nn::Module; a checkpoint uses their names. They are
// initialised in the constructor from LibTorch's generator, which was seeded with spec.training.seed, so they
// are the same in every process.
class Model : public torch::nn::Module {
 public:
  // [n, …sample shape] → [n, classes]; for sequences [n, length] → [n, length, classes]. Override this
  // function or Layers.
  [[nodiscard]] virtual at::Tensor Forward(const at::Tensor& inputs) {
    at::Tensor x = inputs;
    for (const Layer& layer : Layers()) x = layer.forward(x);
    return x;
  }

  // The model as consecutive parts, so that `strategy: pipeline` and `hybrid` can place them on different
  // ranks, `fsdp` can collect one after another, and `gradientCheckpointing` can compute each again in the
  // backward pass. Together they must compute Forward, and contain all parameters and buffers. A part must
  // not modify its input in place. Empty: the model cannot be divided.
  [[nodiscard]] virtual std::vector<Layer> Layers() { return {}; }

  // A differentiable scalar: the SUM over samples, because only the sum over all ranks knows the number to
  // divide by. Default: cross-entropy of class indices [n]; for sequences [n, length], the mean over the
  // positions of each.
  [[nodiscard]] virtual at::Tensor LossSum(const at::Tensor& outputs, const at::Tensor& targets) const {
    const at::Tensor sum = at::cross_entropy_loss(outputs.flatten(0, -2).to(at::kFloat), targets.flatten(),
                                                  {}, at::Reduction::Sum);
    return PlacesOf(targets) == 1 ? sum : sum / PlacesOf(targets);
  }

  // For evaluations: the number of correct samples; a sequence counts with its share of correct positions.
  [[nodiscard]] virtual double CountRight(const at::Tensor& outputs, const at::Tensor& targets) const {
    return outputs.argmax(-1).eq(targets).sum().item<double>() / PlacesOf(targets);
  }

 private:
  static double PlacesOf(const at::Tensor& targets) {
    return targets.dim() == 1 ? 1 : static_cast<double>(targets.size(1));
  }
};

}  // namespace lockstep
