#pragma once
// What the types of the fields do not say: limits, and rules between fields. The CRD's rules are repeated
// here because the command line reads manifests that no API server has seen; what CEL cannot say is only
// here. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/api/violations.h"

namespace lockstep::api {

// Every violation, each beginning with the path of its field and saying what would be right. Empty: valid.
[[nodiscard]] Violations Validate(const TrainingJob& job);

}  // namespace lockstep::api
