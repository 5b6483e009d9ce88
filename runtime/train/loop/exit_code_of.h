#pragma once
// Maps the error that ends a rank to its exit code: whether a new process could succeed, and whether the
// user, the store or the infrastructure is responsible. Pure.

#include "runtime/common/base/error.h"
#include "runtime/common/protocol/exit_codes.h"

namespace lockstep::train {

// During training.
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

// Before the first round. A device fault (for example memory that a dead process still holds) or an
// unreadable file may be gone in a new process. Any other error is permanent.
[[nodiscard]] inline protocol::ExitCode ExitCodeOfStart(const Error& error, bool is_on_device) {
  using protocol::ExitCode;
  const bool is_short = is_on_device && error.message.find("out of memory") != std::string::npos;
  const bool may_pass = error.code == ErrorCode::kDeviceFault || error.code == ErrorCode::kInternal;
  if (may_pass || is_short) return ExitCode::kInfrastructure;
  if (error.code == ErrorCode::kDeviceLost) return ExitCode::kDeviceLost;
  return error.code == ErrorCode::kDataLoss ? ExitCode::kUserError : ExitCode::kBadConfiguration;
}

}  // namespace lockstep::train
