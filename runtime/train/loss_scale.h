#pragma once
// Dynamic loss scaling for precision fp16 (Micikevicius et al., "Mixed Precision Training", 2018): gradients
// below 6e-8 are zero in fp16, so the loss is multiplied before the backward pass and the gradients are
// divided after it. A step in which that overflows is skipped, and the factor halved; after 2000 good steps
// in a row it is doubled (the numbers of PyTorch's GradScaler). All ranks see the same gradients, so all have
// the same factor (after a window of steps: the lowest of them); it is state, which joining ranks and
// checkpoints get. Step thread.

#include <cstdint>
#include <vector>

#include "runtime/train/optimizer.h"

namespace lockstep::train {

inline constexpr const char* kLossScaleName = "loss_scale";

class LossScale {
 public:
  // Always 1, and without state, for other precisions. `samples` of a step: losses here are sums over
  // samples, the number to begin with is made for means.
  explicit LossScale(api::Precision precision = api::Precision::kFp32, int64_t samples = 1);

  [[nodiscard]] double factor() const;
  // A step that was not finite may be its fault.
  [[nodiscard]] bool CanShrink() const { return factor() > 1; }
  void StepDone(bool was_finite);
  [[nodiscard]] int64_t good_steps() const;
  // Without an effect for other precisions.
  void Set(double factor, int64_t good_steps);
  // One tensor: factor, good steps in a row.
  [[nodiscard]] const std::vector<NamedTensor>& state() const { return state_; }

 private:
  std::vector<NamedTensor> state_;
};

}  // namespace lockstep::train
