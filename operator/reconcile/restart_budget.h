#pragma once
// failurePolicy.maxRestarts and restartWindowSeconds. All it needs is in the status, so a restarted operator
// counts on. Pure.

#include <cstdint>

#include "runtime/common/api/training_job.h"

namespace lockstep::reconcile {

// Restarts that count at `now`. With a window the budget is full again once the window has passed since the
// first restart that was charged to it: constant memory, as systemd counts starts.
[[nodiscard]] int32_t UsedRestarts(const api::TrainingJobStatus& status, const api::FailurePolicy& policy,
                                   WallTime now);

// Raises status.attempt to `attempt`; the first restart after a window begins the next.
void ChargeAttempt(api::TrainingJobStatus& status, const api::FailurePolicy& policy, int32_t attempt,
                   WallTime now);

}  // namespace lockstep::reconcile
