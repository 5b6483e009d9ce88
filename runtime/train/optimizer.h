#pragma once
// SGD (momentum, Nesterov), Adam and AdamW over ATen's fused kernels. The state is a fixed list of named
// tensors from the start, so that it can be broadcast and stored as it is; the number of the step is an
// argument, not state. One thread. LibTorch's exceptions pass through: the step catches them.

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/api/training_spec.h"

namespace lockstep::train {

using checkpoint::NamedTensor;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters from their gradients. `step` counts from 0.
  virtual void Step(int64_t step, double learning_rate) = 0;
  // Zero before the first step. Names are "optimizer.<kind>.<parameter>".
  [[nodiscard]] const std::vector<NamedTensor>& state() const { return state_; }

 protected:
  explicit Optimizer(std::vector<at::Tensor> given) : given_(std::move(given)) {}
  // One tensor per parameter: zeros, or what was given.
  std::vector<at::Tensor> AddState(const std::string& kind, const std::vector<NamedTensor>& parameters);

 private:
  const std::vector<at::Tensor> given_;
  std::vector<NamedTensor> state_;
};

// `parameters` are those to train, each with a gradient whenever Step is called. `state`: its tensors, in the
// order of state(); where empty, they are made.
[[nodiscard]] std::unique_ptr<Optimizer> MakeOptimizer(const api::OptimizerSpec& spec,
                                                       const std::vector<NamedTensor>& parameters,
                                                       std::vector<at::Tensor> state = {});

}  // namespace lockstep::train
