#pragma once
// The profile that somebody asks of a running job by its annotation lockstep.dev/profile. Pure.

#include <optional>
#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/result.h"

namespace lockstep::reconcile {

struct ProfileRequest {
  std::string text;  // another text is another request
  int steps = 0;
};

// Absent: nobody asks. An error says what is wrong with what was asked, and what would be right.
[[nodiscard]] Result<std::optional<ProfileRequest>> ProfileRequestOf(const api::TrainingJob& job);

}  // namespace lockstep::reconcile
