#pragma once
// Checks that the types of the fields do not express: limits, and rules between fields. The CRD's rules are
// repeated here because the command line reads manifests that no API server has validated. Rules that CEL
// cannot express are only here. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/api/violations.h"

namespace lockstep::api {

// All violations, each beginning with the path of its field and saying which values are valid. Empty: the job
// is valid.
[[nodiscard]] Violations Validate(const TrainingJob& job);

}  // namespace lockstep::api
