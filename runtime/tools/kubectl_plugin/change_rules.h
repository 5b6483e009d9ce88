#pragma once
// Which changes a job permits in its present state: an error says why not; false means that nothing has to
// change. The API server decides in the end; these checks report the problem before anything is changed.
// Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kubectl_plugin {

[[nodiscard]] Result<bool> MaySuspend(const api::TrainingJob& job);
[[nodiscard]] Result<bool> MayResume(const api::TrainingJob& job);
[[nodiscard]] Result<bool> MayScale(const api::TrainingJob& job, int32_t replicas);
[[nodiscard]] Result<void> MayCheckpoint(const api::TrainingJob& job);
[[nodiscard]] Result<void> MayProfile(const api::TrainingJob& job);

// When the API server stored the newest request for a checkpoint, by its own clock (metadata.managedFields);
// `fallback` if the object does not say.
[[nodiscard]] WallTime TimeOfSaveRequest(const Json& object, WallTime fallback);
// True once a checkpoint was completed after `requested`, false before. An error if there will be none,
// because the job has ended or was suspended.
[[nodiscard]] Result<bool> IsAnswered(const api::TrainingJob& job, WallTime requested,
                                      const std::optional<api::CheckpointStatus>& before);

}  // namespace lockstep::kubectl_plugin
