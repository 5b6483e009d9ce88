#pragma once
// What the types of the fields do not say: limits, and rules between fields. The CRD's rules are repeated
// here because the command line reads manifests that no API server has seen; what CEL cannot say is only
// here. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"

namespace lockstep::api {

// Every violation, each beginning with the path of its field and saying what would be right. Empty: valid.
[[nodiscard]] std::vector<std::string> Validate(const TrainingJob& job);
// The part that a rank checks again on its configuration file.
[[nodiscard]] std::vector<std::string> ValidateTraining(const TrainingSpec& training,
                                                        const std::string& path);

}  // namespace lockstep::api
