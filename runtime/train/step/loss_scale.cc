#include "runtime/train/step/loss_scale.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

namespace lockstep::train {
namespace {

constexpr double kInitialFactor = 65536;
constexpr double kGoodStepsToGrow = 2000;

}  // namespace

LossScale::LossScale(api::Precision precision, int64_t samples) {
  if (precision != api::Precision::kFp16) return;
  // A power of two, so scaling does not change the mantissas of gradients.
  const auto divisor = static_cast<double>(std::bit_floor(static_cast<uint64_t>(samples)));
  state_.push_back({kLossScaleName, at::tensor({std::max(1.0, kInitialFactor / divisor), 0.0}, at::kDouble)});
}

double LossScale::factor() const {
  return state_.empty() ? 1 : state_.front().tensor.const_data_ptr<double>()[0];
}

int64_t LossScale::good_steps() const {
  return state_.empty() ? 0 : static_cast<int64_t>(state_.front().tensor.const_data_ptr<double>()[1]);
}

void LossScale::Set(double factor, int64_t good_steps) {
  if (state_.empty()) return;
  auto* values = state_.front().tensor.data_ptr<double>();
  values[0] = factor;
  values[1] = static_cast<double>(good_steps);
}

void LossScale::StepDone(bool was_finite) {
  if (state_.empty()) return;
  auto* values = state_.front().tensor.data_ptr<double>();
  double& factor = values[0];
  double& good_steps = values[1];
  if (!was_finite) {
    factor = std::max(1.0, factor / 2);
    good_steps = 0;
  } else if (++good_steps >= kGoodStepsToGrow) {
    factor *= 2;
    good_steps = 0;
  }
}

}  // namespace lockstep::train
