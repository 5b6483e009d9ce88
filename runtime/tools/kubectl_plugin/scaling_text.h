#pragma once
// How a job scales, as `kubectl lockstep scaling` shows it. Pure.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/tools/kubectl_plugin/text.h"

namespace lockstep::kubectl_plugin {

// A table of the measured sizes, and a recommendation.
[[nodiscard]] Lines ScalingText(const api::TrainingJob& job, WallTime now);
// The same for programs.
[[nodiscard]] Json ScalingToJson(const api::TrainingJob& job);

}  // namespace lockstep::kubectl_plugin
