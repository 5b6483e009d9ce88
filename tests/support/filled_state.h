#pragma once
// A training state whose tensors all have one value, so that a test sees at once whose state a rank holds.

#include <ATen/ATen.h>

#include "runtime/train/state/training_state.h"

namespace lockstep::testing {

inline void Fill(train::TrainingState& state, int64_t step, double value) {
  const at::NoGradGuard no_grad;
  state.step = step;
  for (const auto& named : state.Tensors()) named.tensor.fill_(value);
}

inline bool IsFilledWith(const train::TrainingState& state, double value) {
  bool all = true;
  for (const auto& named : state.Tensors()) all = all && named.tensor.eq(value).all().item<bool>();
  return all;
}

}  // namespace lockstep::testing
