#pragma once
// Dynamic loss scaling for precision fp16 (Micikevicius et al., "Mixed Precision Training", 2018). Gradients
// below 6e-8 are zero in fp16, so the loss is multiplied by a factor before the backward pass and the
// gradients are divided by it afterwards. A step that overflows is skipped, and the factor is halved; after
// 2000 consecutive good steps it is doubled (the constants of PyTorch's GradScaler). All ranks see the same
// gradients, so all have the same factor (after a window of steps: the lowest of them). The factor is part of
// the state that joining ranks and checkpoints get. Step thread.

#include <cstdint>
#include <vector>

#include "runtime/train/step/optimizer.h"

namespace lockstep::train {

inline constexpr const char* kLossScaleName = "loss_scale";

class LossScale {
 public:
  // For other precisions the factor is always 1 and there is no state. `samples` is the number of samples of
  // a step: losses here are sums over samples, but the usual initial factor is meant for means.
  explicit LossScale(api::Precision precision = api::Precision::kFp32, int64_t samples = 1);

  [[nodiscard]] double factor() const;
  // Whether the factor itself may have caused a non-finite step.
  [[nodiscard]] bool CanShrink() const { return factor() > 1; }
  void StepDone(bool was_finite);
  [[nodiscard]] int64_t good_steps() const;
  // No effect for other precisions.
  void Set(double factor, int64_t good_steps);
  // A single tensor: the factor, and the number of consecutive good steps.
  [[nodiscard]] const std::vector<NamedTensor>& state() const { return state_; }

 private:
  std::vector<NamedTensor> state_;
};

}  // namespace lockstep::train
