#pragma once
// job + slot → Pod: the user's template with what a worker needs. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// `avoided`: names of nodes.
[[nodiscard]] Json DesiredPod(const api::TrainingJob& job, int32_t slot,
                              const std::vector<std::string>& avoided = {});

// The list under a key, made where there is none.
Json& ListIn(Json& object, const char* key);

}  // namespace lockstep::reconcile
