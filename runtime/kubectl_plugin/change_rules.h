#pragma once
// What may be asked of a job in its present state: an error says why not, false that it is so already. The
// API server has the last word; these say it before anything is changed, and in plain words. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/result.h"

namespace lockstep::kubectl_plugin {

[[nodiscard]] Result<bool> MaySuspend(const api::TrainingJob& job);
[[nodiscard]] Result<bool> MayResume(const api::TrainingJob& job);
[[nodiscard]] Result<bool> MayScale(const api::TrainingJob& job, int32_t replicas);
[[nodiscard]] Result<void> MayCheckpoint(const api::TrainingJob& job);
[[nodiscard]] Result<void> MayProfile(const api::TrainingJob& job);

// When the API server wrote the newest wish for a checkpoint, by its own clock (metadata.managedFields);
// `fallback` where it does not tell.
[[nodiscard]] WallTime TimeOfWish(const Json& object, WallTime fallback);
// A checkpoint that became complete after the wish: false while it is to come. An error where none will: the
// job has ended or was suspended.
[[nodiscard]] Result<bool> IsAnswered(const api::TrainingJob& job, WallTime wish,
                                      const std::optional<api::CheckpointStatus>& before);

}  // namespace lockstep::kubectl_plugin
