#include "operator/reconcile/restart_budget.h"

namespace lockstep::reconcile {
namespace {

bool IsOver(const api::TrainingJobStatus& status, int32_t window_seconds, WallTime now) {
  const auto& window = status.restart_window;
  return !window || !window->since || now - *window->since >= std::chrono::seconds(window_seconds);
}

}  // namespace

int32_t UsedRestarts(const api::TrainingJobStatus& status, const api::FailurePolicy& policy, WallTime now) {
  if (!policy.restart_window_seconds) return status.attempt;
  if (IsOver(status, *policy.restart_window_seconds, now)) return 0;
  return status.attempt - status.restart_window->attempt;
}

void ChargeAttempt(api::TrainingJobStatus& status, const api::FailurePolicy& policy, int32_t attempt,
                   WallTime now) {
  if (attempt <= status.attempt) return;
  if (policy.restart_window_seconds && IsOver(status, *policy.restart_window_seconds, now)) {
    status.restart_window = {now, status.attempt};
  }
  status.attempt = attempt;
}

}  // namespace lockstep::reconcile
