#include "runtime/models/precision.h"

#include <ATen/autocast_mode.h>

namespace lockstep::models {

Autocast::Autocast(api::Precision precision) : is_on_(precision == api::Precision::kBf16) {
  if (!is_on_) return;
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!is_on_) return;
  // What was cast is of weights that the optimizer is about to change.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

}  // namespace lockstep::models
