#pragma once
// Converts LibTorch's exceptions into an Error where our code calls LibTorch. Any thread.
//
// Errors of a device or its libraries are recognised by their text, because c10d wraps exceptions of one type
// in another; from here on they are codes. A CUDA error may be reported by a later call than the one that
// caused it.

#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/common/base/result.h"

namespace lockstep::comm {

// kDeviceFault or kDeviceLost if CUDA reported an error after which the process or the device is unusable;
// kAborted if NCCL reported that the group is broken; else `otherwise`. Pure.
[[nodiscard]] ErrorCode CodeOfDeviceError(std::string_view message, ErrorCode otherwise);

// Converts the exception being handled to an Error with `code`, or with the code of a device error, or of the
// Error that was thrown. Call it only inside a catch block. The message is one line: LibTorch's own message
// has a backtrace whose symbols take longer to look up than a whole recovery.
[[nodiscard]] Error CurrentException(ErrorCode code, std::string_view context);

// The result of a call that returns a T: a Result<U> remains one.
template <typename T>
struct Caught {
  using Type = Result<T>;
};
template <typename U>
struct Caught<Result<U>> {
  using Type = Result<U>;
};

// Runs `call` and converts any exception into an Error.
template <typename Call>
[[nodiscard]] auto CatchTorch(ErrorCode code, std::string_view context, Call&& call)
    -> Caught<std::decay_t<std::invoke_result_t<Call>>>::Type {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Call>>) {
      std::forward<Call>(call)();
      return {};
    } else {
      return std::forward<Call>(call)();
    }
  } catch (...) {
    return CurrentException(code, context);
  }
}

}  // namespace lockstep::comm
