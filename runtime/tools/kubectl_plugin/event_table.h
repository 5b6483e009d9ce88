#pragma once
// The events of a job and of its worker pods, for people. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/command_line/text.h"

namespace lockstep::kubectl_plugin {

// `list`: the events of the job's namespace, as the API server returns them. A header and a line for each
// event, oldest first; empty if there is none.
[[nodiscard]] command_line::Lines EventTable(const Json& list, const api::TrainingJob& job, WallTime now);

}  // namespace lockstep::kubectl_plugin
