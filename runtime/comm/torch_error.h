#pragma once
// Turns what LibTorch throws into an Error, at the edge where our code calls it. Any thread.

#include <string_view>
#include <utility>

#include "runtime/common/base/result.h"

namespace lockstep::comm {

// The exception being handled, as an Error with `code`; call it only inside a catch block. The message is one
// line: LibTorch's own carries a backtrace whose symbols take longer to look up than a whole recovery.
[[nodiscard]] Error CurrentException(ErrorCode code, std::string_view context);

// Runs `call` and turns whatever it throws into an Error.
template <typename Call>
[[nodiscard]] Result<void> CatchTorch(ErrorCode code, std::string_view context, Call&& call) {
  try {
    std::forward<Call>(call)();
    return {};
  } catch (...) {
    return CurrentException(code, context);
  }
}

}  // namespace lockstep::comm
