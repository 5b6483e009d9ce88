#include "runtime/models/precision.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace lockstep::models {

Autocast::Autocast(api::Precision precision, c10::DeviceType device)
    : is_on_(precision != api::Precision::kFp32), device_(device) {
  if (!is_on_) return;
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, precision == api::Precision::kFp16 ? at::kHalf : at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!is_on_) return;
  // The cached casts are of weights that the optimizer is about to change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, false);
}

api::Precision PrecisionOf(c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return api::Precision::kFp32;
  return at::autocast::get_autocast_dtype(device) == at::kHalf ? api::Precision::kFp16
                                                               : api::Precision::kBf16;
}

void AllowTf32(bool allowed) {
  at::globalContext().setAllowTF32CuBLAS(allowed);
  at::globalContext().setAllowTF32CuDNN(allowed);
}

}  // namespace lockstep::models
