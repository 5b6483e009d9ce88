#pragma once
// What the rendezvous knows → the parts of the status that tell of it: round, progress, checkpoint, restarts.
// Pure.

#include <optional>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// Steps reach the status at most this often: the promise on writes to the API server.
inline constexpr std::chrono::seconds kProgressPeriod{10};

// False where the view is still empty because the operator was restarted and the workers have not announced
// themselves again: then the status keeps what it says.
[[nodiscard]] bool KnowsTheRound(const Observed& observed);

// Updates `status` (a copy of the job's). `is_final`: nothing comes after, so write the last progress
// whatever the period says.
void ApplyRendezvous(const Observed& observed, bool is_final, api::TrainingJobStatus& status);

// What ended a round, for people, with the last lines of a rank that died where it wrote any; < 1024 bytes.
[[nodiscard]] std::string StoryOf(const rendezvous::RoundChange& change);

// The newest round change that the status does not tell of yet.
[[nodiscard]] std::vector<rendezvous::RoundChange> NewChanges(const Observed& observed);

}  // namespace lockstep::reconcile
