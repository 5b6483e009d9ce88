#pragma once
// The settings of a job's rendezvous, from the resource; used by the operator and by `lockstep run`. Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::api {

// Everything except first_round, which depends on the earlier rounds of the job.
[[nodiscard]] rendezvous::JobSettings RendezvousSettingsOf(const TrainingJobSpec& spec);

}  // namespace lockstep::api
