#include "runtime/train/step/not_finite_steps.h"

#include <cmath>

#include "runtime/common/base/strings.h"

namespace lockstep::train {
namespace {

Error Diverged(int64_t step, const std::string& where) {
  return {ErrorCode::kInvalidArgument,
          "training diverged: loss or gradient were not finite in " + std::to_string(kNotFiniteLimit) +
              " steps up to step " + std::to_string(step) + " (" + where +
              "); lower spec.training.optimizer.learningRate or set spec.training.optimizer.clipNorm"};
}

}  // namespace

Result<std::string> NotFiniteSteps::After(int64_t step, bool applied, double loss, LossScale& loss_scale,
                                          const std::function<Result<std::string>()>& locate) {
  // Then the factor may have caused it, and the next step has a lower one.
  const bool is_overflow = !applied && std::isfinite(loss) && loss_scale.CanShrink();
  const double factor = loss_scale.factor();
  loss_scale.StepDone(applied);
  if (is_overflow) return "gradients of fp16 at the loss scale " + FormatNumber(factor);
  in_a_row_ = applied ? 0 : in_a_row_ + 1;
  if (applied) return std::string();
  const Result<std::string> place = locate();
  const std::string where = place.ok() ? *place : "location unknown: " + place.error().message;
  if (in_a_row_ >= kNotFiniteLimit) return Diverged(step, where);
  return where;
}

}  // namespace lockstep::train
