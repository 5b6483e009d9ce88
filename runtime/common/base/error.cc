#include "runtime/common/base/error.h"

namespace lockstep {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "InvalidArgument";
    case ErrorCode::kNotFound: return "NotFound";
    case ErrorCode::kAlreadyExists: return "AlreadyExists";
    case ErrorCode::kConflict: return "Conflict";
    case ErrorCode::kGone: return "Gone";
    case ErrorCode::kUnauthorized: return "Unauthorized";
    case ErrorCode::kForbidden: return "Forbidden";
    case ErrorCode::kThrottled: return "Throttled";
    case ErrorCode::kUnavailable: return "Unavailable";
    case ErrorCode::kDeadlineExceeded: return "DeadlineExceeded";
    case ErrorCode::kCancelled: return "Cancelled";
    case ErrorCode::kAborted: return "Aborted";
    case ErrorCode::kDataLoss: return "DataLoss";
    case ErrorCode::kUnsupported: return "Unsupported";
    case ErrorCode::kDeviceFault: return "DeviceFault";
    case ErrorCode::kDeviceLost: return "DeviceLost";
    case ErrorCode::kInternal: return "Internal";
  }
  return "Internal";
}

Error Error::WithContext(std::string_view context) const {
  return {code, std::string(context) + ": " + message};
}

std::string Error::ToString() const { return std::string(ErrorCodeName(code)) + ": " + message; }

bool Error::IsTransient() const {
  return code == ErrorCode::kThrottled || code == ErrorCode::kUnavailable ||
         code == ErrorCode::kDeadlineExceeded;
}

}  // namespace lockstep
