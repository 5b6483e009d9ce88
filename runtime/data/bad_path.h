#pragma once
// What is wrong with the data that a job names, and what would be right.

#include <string>

#include "runtime/common/base/error.h"

namespace lockstep::data {

[[nodiscard]] inline Error BadPath(const std::string& problem, const std::string& right) {
  return {ErrorCode::kInvalidArgument, "spec.training.data.path: " + problem + "; " + right};
}

}  // namespace lockstep::data
