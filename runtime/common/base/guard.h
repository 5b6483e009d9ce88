#pragma once
// Limits an exception to one request, pass or tick of a thread, so that it does not end the process. Any
// thread.

#include <exception>

#include "runtime/common/base/result.h"

namespace lockstep {

// Calls `work`; an exception becomes an Error, which the caller logs.
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
