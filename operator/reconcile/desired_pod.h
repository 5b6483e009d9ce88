#pragma once
// Job and slot → Pod: the user's template and what a worker needs. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "operator/reconcile/observed.h"

namespace lockstep::reconcile {

// `avoided`: names of nodes.
[[nodiscard]] Json DesiredPod(const api::TrainingJob& job, int32_t slot,
                              const std::vector<std::string>& avoided = {});

// The list at a key, created if it is missing.
Json& ListIn(Json& object, const char* key);
void SetDefault(Json& object, const char* key, Json value);

// Sets the security context of a container that runs one of our programs as the Pod Security Standard
// "restricted" requires, unless the template sets it.
void Restrict(Json& container, const Json& pod_spec);

}  // namespace lockstep::reconcile
