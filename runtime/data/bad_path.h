#pragma once
// What is wrong with the data that a job names, and what would be right.

#include <cstring>
#include <string>

#include "runtime/common/base/error.h"
#include "runtime/common/base/file.h"

namespace lockstep::data {

[[nodiscard]] inline Error BadPath(const std::string& problem, const std::string& right) {
  return {ErrorCode::kInvalidArgument, "spec.training.data.path: " + problem + "; " + right};
}

// Of a file or folder that the system did not read, for this reason. kUnavailable where that may pass.
[[nodiscard]] inline Error UnreadablePath(const std::string& path, int error_number,
                                          const std::string& right) {
  Error error = BadPath(path + " cannot be read (" + std::strerror(error_number) + ")", right);
  if (MayPass(error_number)) error.code = ErrorCode::kUnavailable;
  return error;
}

}  // namespace lockstep::data
