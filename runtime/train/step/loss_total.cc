#include "runtime/train/step/loss_total.h"

#include <ATen/ATen.h>

namespace lockstep::train {

void LossTotal::Add(const at::Tensor& loss) {
  const at::Tensor added = loss.detach().to(at::kDouble);
  sum_ = sum_.defined() ? sum_ + added : added;
}

double LossTotal::Read() const { return sum_.defined() ? sum_.item<double>() : 0; }

}  // namespace lockstep::train
