#pragma once
// Turns what LibTorch throws into an Error, at the edge where our code calls it. Any thread.
//
// What a device or its libraries reported is known by its text, as c10d wraps exceptions of one type in those
// of another; from here on it is a code. CUDA's errors may come from any later call than the one at fault.

#include <string_view>
#include <utility>

#include "runtime/common/base/result.h"

namespace lockstep::comm {

// kDeviceFault or kDeviceLost where CUDA reported an error after which the process, or the device, is of no
// use; kAborted where NCCL reported that the group is broken; else `otherwise`. Pure.
[[nodiscard]] ErrorCode CodeOfDeviceError(std::string_view message, ErrorCode otherwise);

// The exception being handled, as an Error with `code`, or with what a device error asks for, or with its own
// where an Error was thrown; call it only inside a catch block. The message is one line: LibTorch's own
// carries a backtrace whose symbols take longer to look up than a whole recovery.
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
