#pragma once
// The rules of spec.training. A rank checks them again on its configuration file. Pure.

#include <string>

#include "runtime/common/api/training_spec.h"
#include "runtime/common/api/violations.h"

namespace lockstep::api {

// `path` is that of the spec, for the messages. See validate.h.
[[nodiscard]] Violations ValidateTraining(const TrainingSpec& training, const std::string& path);

}  // namespace lockstep::api
