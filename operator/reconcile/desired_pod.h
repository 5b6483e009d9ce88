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
void SetDefault(Json& object, const char* key, Json value);

// A container that runs our own program, as the Pod Security standard "restricted" asks, where the template
// says nothing of its own.
void Restrict(Json& container, const Json& pod_spec);

}  // namespace lockstep::reconcile
