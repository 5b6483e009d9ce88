#pragma once
// What follows from a step whose loss or gradients are not finite: it is skipped, the loss scale of fp16 is
// lowered, and several such steps in a row end the training. Step thread.

#include <functional>
#include <string>

#include "runtime/common/base/result.h"
#include "runtime/train/step/loss_scale.h"

namespace lockstep::train {

// Consecutive non-finite steps before the training counts as diverged. A single one may be an outlier and is
// skipped.
inline constexpr int kNotFiniteLimit = 3;

class NotFiniteSteps {
 public:
  // Call after each step, with its number and the same results on all ranks. `locate` says where the
  // non-finite values are from; the step has ended, so its failure changes nothing. Returns the place, empty
  // if the step was applied. kInvalidArgument: the training has diverged.
  [[nodiscard]] Result<std::string> After(int64_t step, bool applied, double loss, LossScale& loss_scale,
                                          const std::function<Result<std::string>()>& locate);
  // The last steps are taken back.
  void Forget() { in_a_row_ = 0; }

 private:
  int in_a_row_ = 0;
};

}  // namespace lockstep::train
