#pragma once
// Observed + decision → the whole status. Written once per pass, last, and only if it differs. Pure.

#include "operator/reconcile/decision.h"
#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

[[nodiscard]] api::TrainingJobStatus MakeStatus(const Observed& observed, const PodGroups& groups,
                                                const Decision& decision, const KueueState& kueue);

// The status for a pass in which the API server rejected a pod: Failed if the template can never be accepted,
// else waiting, with the server's message.
[[nodiscard]] api::TrainingJobStatus StatusAfterRefusal(const Observed& observed,
                                                        api::TrainingJobStatus status, const Error& refusal);

}  // namespace lockstep::reconcile
