#pragma once
// What a user can do to measure a job of the cluster with other sizes. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/tools/cli/scaling_text.h"

namespace lockstep::kubectl_plugin {

[[nodiscard]] cli::ScalingHints ScalingHintsFor(const api::TrainingJob& job);

}  // namespace lockstep::kubectl_plugin
