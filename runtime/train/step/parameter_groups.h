#pragma once
// spec.training.optimizer.groups, weightDecayOn and muon: what the optimizer does with a parameter, by
// its name and shape. The first group with a pattern that matches the name applies; what it does not set
// is as without it. Any thread.

#include <torch/nn/module.h>

#include "runtime/checkpoint/shard_codec.h"
#include "runtime/common/api/training_spec.h"
#include "runtime/common/base/result.h"

namespace lockstep::train {

struct ParameterSettings {
  double weight_decay = 0;
  double learning_rate_scale = 1;
  bool use_muon = false;  // the optimizer is Muon and does not treat the parameter as AdamW does

  friend bool operator==(const ParameterSettings&, const ParameterSettings&) = default;
};

// `parameter` must be whole, because weightDecayOn and muon depend on the number of its dimensions.
[[nodiscard]] ParameterSettings SettingsOf(const api::OptimizerSpec& spec,
                                           const checkpoint::NamedTensor& parameter);

// Sets requires_grad to false for the parameters of frozen groups. kInvalidArgument, with the field, if a
// pattern matches no parameter, or if no parameter remains to train.
[[nodiscard]] Result<void> Freeze(const api::OptimizerSpec& spec, torch::nn::Module& model);

}  // namespace lockstep::train
