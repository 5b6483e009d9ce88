#pragma once
// The view of the rendezvous → the status fields for it: round, progress, checkpoint, restarts. Pure.

#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// The shortest time between two updates of the step, which limits writes to the API server.
inline constexpr std::chrono::seconds kProgressPeriod{10};

// False while the view is empty because the operator was restarted and the workers have not sent heartbeats
// yet. The status is kept until then.
[[nodiscard]] bool IsRoundKnown(const Observed& observed);

// Updates `status`, a copy of the job's. `is_final`: no later pass follows, so write the last progress
// regardless of the period.
void ApplyRendezvous(const Observed& observed, bool is_final, api::TrainingJobStatus& status);

// Why a round ended, for people, with the last lines of a rank that died, if it wrote any; < 1024 bytes.
[[nodiscard]] std::string DescriptionOf(const rendezvous::RoundChange& change);

// The round changes that are not yet in the status.
[[nodiscard]] std::vector<rendezvous::RoundChange> NewChanges(const Observed& observed);

}  // namespace lockstep::reconcile
