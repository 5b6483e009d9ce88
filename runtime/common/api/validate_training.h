#pragma once
// The rules of spec.training. A rank checks its configuration file with them again. Pure.

#include <string>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/api/violations.h"

namespace lockstep::api {

// `path`: of the section, for messages. See validate.h.
[[nodiscard]] Violations ValidateTraining(const TrainingSpec& training, const std::string& path);

}  // namespace lockstep::api
