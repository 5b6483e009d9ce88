#pragma once
// A range in the trace of LibTorch's profiler (profile.h) for the lifetime of the object. Ranges on one
// thread nest. The cost is negligible while nothing is recorded.

#include <ATen/record_function.h>

#include <string>
#include <string_view>
#include <utility>

namespace lockstep::train {

class TraceRange {
 public:
  explicit TraceRange(std::string name) : name_(std::move(name)), function_(at::RecordScope::USER_SCOPE) {
    if (function_.isActive()) function_.before(std::string_view(name_));
  }

 private:
  const std::string name_;
  at::RecordFunction function_;
};

}  // namespace lockstep::train
