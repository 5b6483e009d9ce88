#pragma once
// The resource between JSON and values. Reading never stops at the first fault: every violation is appended,
// each beginning with the path of its field. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"

namespace lockstep::api {

// The result is always usable for its metadata and status, so that a job with violations can be told so.
// Fields that this version does not know are violations in the spec, and passed over in metadata and status.
[[nodiscard]] TrainingJob TrainingJobFromJson(const Json& object, std::vector<std::string>& violations);

[[nodiscard]] TrainingJobStatus TrainingJobStatusFromJson(const Json& json,
                                                          std::vector<std::string>& violations);
// Numbers are rounded to six digits; absent and not finite ones are left out.
[[nodiscard]] Json TrainingJobStatusToJson(const TrainingJobStatus& status);

}  // namespace lockstep::api
