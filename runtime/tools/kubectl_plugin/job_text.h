#pragma once
// A job as `kubectl lockstep status` shows it. Pure.

#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/command_line/text.h"
#include "runtime/tools/kubectl_plugin/pod_rows.h"
#include "runtime/tools/kubectl_plugin/rank_places.h"

namespace lockstep::kubectl_plugin {

// `pods`: of the job, by slot.
[[nodiscard]] command_line::Lines JobText(const api::TrainingJob& job, std::vector<PodRow> pods,
                                          const RankPlaces& places, WallTime now);
// A header and a line for each job.
[[nodiscard]] command_line::Lines JobTable(const std::vector<api::TrainingJob>& jobs, bool with_namespace,
                                           WallTime now);
// "5210 samples/s, 25 ms a step"; empty if it is unknown or the job does not train now.
[[nodiscard]] std::string SpeedText(const api::TrainingJob& job);

}  // namespace lockstep::kubectl_plugin
