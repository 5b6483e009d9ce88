#pragma once
// What turns gradients into changes of the weights; each rule is in a file of its name. Parameters must be
// whole, except that an optimizer that is element-wise (api::IsElementwise) also steps arbitrary slices. The
// state is a fixed list of named tensors from the beginning, so it can be broadcast and stored; the step
// number is an argument, not state. One thread. LibTorch's exceptions pass through: the step catches them.
//
// With weightAverage there is an exponential moving average of each parameter (Polyak and Juditsky 1992,
// "Acceleration of stochastic approximation by averaging"; Kingma and Ba 2015, "Adam", section 7.2), as in
// PyTorch's torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn. Its slot has the average minus the
// parameter, because that is zero at the beginning: before the first step, after a restore of weights alone,
// and when the option is turned on later. A step adds the parameter first, which rounds the sum to the
// precision of the parameter, as an average that is stored itself is rounded.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/train/step/parameter_groups.h"

namespace lockstep::train {

using checkpoint::NamedTensor;

// A parameter and, in memory of its own, its average.
struct WeightAndAverage {
  at::Tensor weight;
  at::Tensor average;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Updates the parameters from their gradients, and their averages. `step` starts at 0.
  void Step(int64_t step, double learning_rate);
  // Of all parameters; empty without weightAverage.
  [[nodiscard]] std::vector<WeightAndAverage> Averages() const;
  // All zero before the first step. Names are "optimizer.<slot>.<parameter>".
  [[nodiscard]] const std::vector<NamedTensor>& state() const { return state_; }

 protected:
  // The average is the first slot.
  Optimizer(const api::OptimizerSpec& spec, const std::vector<NamedTensor>& parameters,
            std::vector<at::Tensor> given);
  virtual void Update(int64_t step, double learning_rate) = 0;
  // Adds a state slot: one tensor per parameter, either zeros or the tensors given to the constructor.
  std::vector<at::Tensor> AddState(std::string_view prefix, const std::vector<NamedTensor>& parameters);
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parameters_; }
  [[nodiscard]] const api::OptimizerSpec& spec() const { return spec_; }

 private:
  const api::OptimizerSpec spec_;
  const std::vector<at::Tensor> parameters_;
  const std::vector<at::Tensor> given_;
  std::vector<NamedTensor> state_;
  std::vector<at::Tensor> average_minus_weight_;  // empty: there is no average
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
