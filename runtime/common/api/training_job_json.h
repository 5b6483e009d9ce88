#pragma once
// Converts the resource between JSON and values. Reading continues after a violation: all violations are
// appended, each beginning with the path of its field. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"

namespace lockstep::api {

// The metadata and status of the result are always usable, so that violations can be reported to the job.
// Unknown fields are violations in the spec, and ignored in metadata and status.
[[nodiscard]] TrainingJob TrainingJobFromJson(const Json& object, std::vector<std::string>& violations);

[[nodiscard]] TrainingJobStatus TrainingJobStatusFromJson(const Json& json,
                                                          std::vector<std::string>& violations);
// Numbers are rounded to six digits; absent and non-finite ones are omitted.
[[nodiscard]] Json TrainingJobStatusToJson(const TrainingJobStatus& status);

}  // namespace lockstep::api
