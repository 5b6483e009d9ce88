#pragma once
// The request for a profile of a running job, in the annotation lockstep.dev/profile. Pure.

#include <optional>
#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/result.h"

namespace lockstep::reconcile {

struct ProfileRequest {
  std::string text;  // the annotation's value; another value is another request
  int steps = 0;
};

// No value: there is no request. An error says what is wrong with the annotation and which values are valid.
[[nodiscard]] Result<std::optional<ProfileRequest>> ProfileRequestOf(const api::TrainingJob& job);

}  // namespace lockstep::reconcile
