#pragma once
// SGD (momentum, Nesterov), Adam and AdamW over ATen's fused kernels, one call for all parameters with equal
// settings (parameter_groups.h). Updates must be element-wise, because ShardedOptimizer steps arbitrary
// slices of the flattened parameters. The state is a fixed list of named tensors from the beginning, so it
// can be broadcast and stored as it is; the step number is an argument, not state. One thread. LibTorch's
// exceptions pass through: the step catches them.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/train/step/parameter_groups.h"

namespace lockstep::train {

using checkpoint::NamedTensor;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters from their gradients. `step` starts at 0.
  virtual void Step(int64_t step, double learning_rate) = 0;
  // All zero before the first step. Names are "optimizer.<slot>.<parameter>".
  [[nodiscard]] const std::vector<NamedTensor>& state() const { return state_; }

 protected:
  explicit Optimizer(std::vector<at::Tensor> given) : given_(std::move(given)) {}
  // Adds a state slot: one tensor per parameter, either zeros or the tensors given to the constructor.
  std::vector<at::Tensor> AddState(const std::string& slot, const std::vector<NamedTensor>& parameters);

 private:
  const std::vector<at::Tensor> given_;
  std::vector<NamedTensor> state_;
};

// `parameters` are the trained ones; each must have a gradient whenever Step is called. `state` has the
// tensors to use, in the order of state(); if it is empty, they are allocated. `settings` has one entry per
// parameter; if it is empty, they follow from its name and shape. Slices need those of the whole parameter.
[[nodiscard]] std::unique_ptr<Optimizer> MakeOptimizer(const api::OptimizerSpec& spec,
                                                       const std::vector<NamedTensor>& parameters,
                                                       std::vector<at::Tensor> state = {},
                                                       std::vector<ParameterSettings> settings = {});
// The prefixes of the names in state(), in its order: "optimizer.<slot>.".
[[nodiscard]] std::vector<std::string> SlotPrefixes(const api::OptimizerSpec& spec);
// One entry per parameter, each of which must be whole.
[[nodiscard]] std::vector<ParameterSettings> SettingsOf(const api::OptimizerSpec& spec,
                                                        const std::vector<NamedTensor>& parameters);

}  // namespace lockstep::train
