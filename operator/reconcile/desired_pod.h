#pragma once
// job + slot → Pod: the user's template with what a worker needs. Pure.

#include <cstdint>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

[[nodiscard]] Json DesiredPod(const api::TrainingJob& job, int32_t slot);

}  // namespace lockstep::reconcile
