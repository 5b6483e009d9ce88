#pragma once
// failurePolicy.maxRestarts and restartWindowSeconds. The status contains all that is needed, so a restarted
// operator continues the count. Pure.

#include <cstdint>

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

// Restarts that count at `now`. With a window the count is zero again once the window has passed since its
// first restart. This needs constant memory, like the start limit of systemd.
[[nodiscard]] int32_t UsedRestarts(const api::TrainingJobStatus& status, const api::FailurePolicy& policy,
                                   WallTime now);

// Raises status.attempt to `attempt`. The first restart after a window begins the next window.
void ChargeAttempt(api::TrainingJobStatus& status, const api::FailurePolicy& policy, int32_t attempt,
                   WallTime now);

}  // namespace lockstep::reconcile
