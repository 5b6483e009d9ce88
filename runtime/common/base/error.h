#pragma once
// An expected failure as a value: its code (callers decide by code, never by text), what went wrong, and one
// line of context per layer. Plain value, any thread.

#include <string>
#include <string_view>

namespace lockstep {

enum class ErrorCode {
  kInvalidArgument,  // the input is wrong; retrying the same input cannot help
  kNotFound,
  kAlreadyExists,
  kConflict,  // somebody else changed it first: read again
  kGone,      // too old (a watch position, a round): start over
  kUnauthorized,
  kForbidden,
  kThrottled,    // too many requests: wait, then retry
  kUnavailable,  // the other side does not respond at present: retry with back-off
  kDeadlineExceeded,
  kCancelled,    // the caller requested a stop
  kAborted,      // the round broke during the operation
  kDataLoss,     // stored bytes are damaged
  kUnsupported,  // valid, but not implemented in this version
  kDeviceFault,  // the device rejects all further work of this process; another process may use it
  kDeviceLost,   // the device fails in every process
  kInternal,
};

[[nodiscard]] std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // "reading config: /etc/x: no such file": adds the outer context in front.
  [[nodiscard]] Error WithContext(std::string_view context) const;
  [[nodiscard]] std::string ToString() const;  // "NotFound: message"
  // True if the same call may succeed a moment later.
  [[nodiscard]] bool IsTransient() const;
};

}  // namespace lockstep
