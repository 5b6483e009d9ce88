#pragma once
// An expected failure as a value: what kind (decide by code, never by text), what went wrong, and one line of
// context per layer. Plain value, any thread.

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
  kUnavailable,  // the other side is not there now: retry with back-off
  kDeadlineExceeded,
  kCancelled,    // we were asked to stop
  kAborted,      // the round broke under the operation
  kDataLoss,     // stored bytes are damaged
  kUnsupported,  // valid, but this version does not do it
  kDeviceFault,  // the device refuses whatever this process asks from now on; another process may ask again
  kDeviceLost,   // the device fails any process
  kInternal,
};

[[nodiscard]] std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  // "reading config: /etc/x: no such file": the outer context goes in front.
  [[nodiscard]] Error WithContext(std::string_view context) const;
  [[nodiscard]] std::string ToString() const;  // "NotFound: message"
  // True for failures that the same call may not meet again a moment later.
  [[nodiscard]] bool IsTransient() const;
};

}  // namespace lockstep
