#pragma once
// Observed + decision → the whole status. Written once per pass, last, and only where it differs. Pure.

#include "operator/reconcile/decision.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

[[nodiscard]] api::TrainingJobStatus MakeStatus(const Observed& observed, const PodGroups& groups,
                                                const Decision& decision, const QueueState& queue);

// The status for a pass whose pod the API server refused: Failed where the template can never be accepted,
// else waiting, with the server's words.
[[nodiscard]] api::TrainingJobStatus StatusAfterRefusal(const Observed& observed,
                                                        api::TrainingJobStatus status, const Error& refusal);

}  // namespace lockstep::reconcile
