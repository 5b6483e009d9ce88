#pragma once
// The exit code of a rank that an error ends: whether the same again in a new process could end otherwise,
// and whose fault it is. Pure.

#include "runtime/common/base/error.h"
#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::train {

// While it trains.
[[nodiscard]] inline protocol::ExitCode ExitCodeOf(const Error& error) {
  using protocol::ExitCode;
  switch (error.code) {
    case ErrorCode::kUnavailable:
    case ErrorCode::kDeadlineExceeded:
    case ErrorCode::kUnauthorized:
    case ErrorCode::kForbidden:
    case ErrorCode::kThrottled:
    case ErrorCode::kNotFound: return ExitCode::kStore;
    case ErrorCode::kDeviceFault: return ExitCode::kInfrastructure;
    case ErrorCode::kDeviceLost: return ExitCode::kDeviceLost;
    default: return ExitCode::kUserError;
  }
}

// Before its first round. A device's own trouble, the memory that a dead process still holds, say, or a file
// that cannot be read may be gone in another process; anything else is wrong for good.
[[nodiscard]] inline protocol::ExitCode ExitCodeOfStart(const Error& error, bool is_on_device) {
  using protocol::ExitCode;
  const bool is_short = is_on_device && error.message.find("out of memory") != std::string::npos;
  const bool may_pass = error.code == ErrorCode::kDeviceFault || error.code == ErrorCode::kInternal;
  if (may_pass || is_short) return ExitCode::kInfrastructure;
  if (error.code == ErrorCode::kDeviceLost) return ExitCode::kDeviceLost;
  return error.code == ErrorCode::kDataLoss ? ExitCode::kUserError : ExitCode::kBadConfiguration;
}

}  // namespace lockstep::train
