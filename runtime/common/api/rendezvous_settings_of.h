#pragma once
// From the resource to the settings of its rendezvous; the operator and `lockstep run` both start from it.
// Pure.

#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/settings.h"

namespace lockstep::api {

// Everything but first_round, which depends on the job's past.
[[nodiscard]] rendezvous::JobSettings RendezvousSettingsOf(const TrainingJobSpec& spec);

}  // namespace lockstep::api
