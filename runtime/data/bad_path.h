#pragma once
// An error about the data that a job names: the problem, and what would be right.

#include <cstring>
#include <string>

#include "runtime/common/base/error.h"
#include "runtime/common/base/file.h"

namespace lockstep::data {

[[nodiscard]] inline Error BadPath(const std::string& problem, const std::string& right) {
  return {ErrorCode::kInvalidArgument, "spec.training.data.path: " + problem + "; " + right};
}

// For a file or folder that could not be read with this errno. kUnavailable if the error may be temporary.
[[nodiscard]] inline Error UnreadablePath(const std::string& path, int error_number,
                                          const std::string& right) {
  Error error = BadPath(path + " cannot be read (" + std::strerror(error_number) + ")", right);
  if (MayPass(error_number)) error.code = ErrorCode::kUnavailable;
  return error;
}

}  // namespace lockstep::data
