#pragma once
// For the places where a thread begins one request, pass or tick: an exception ends that one, never the process.
// Any thread.

#include <exception>

#include "runtime/common/base/result.h"

namespace lockstep {

// Calls `work`; what it throws becomes an Error, which the caller logs.
template <typename Work>
[[nodiscard]] Result<void> Guarded(Work&& work) {
  try {
    work();
    return {};
  } catch (const std::exception& exception) {
    return Error{ErrorCode::kInternal, std::string("exception: ") + exception.what()};
  } catch (...) {
    return Error{ErrorCode::kInternal, "exception of an unknown type"};
  }
}

}  // namespace lockstep
