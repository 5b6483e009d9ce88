#include "operator/reconcile/profile_request.h"

#include "runtime/common/api/profile_window.h"
#include "runtime/common/base/strings.h"

namespace lockstep::reconcile {
namespace {

// The request is part of each heartbeat's answer.
constexpr std::size_t kMaxText = 256;

Error Refusal(const std::string& why) {
  return {ErrorCode::kInvalidArgument, std::string(api::kAnnotationProfile) + ": " + why};
}

}  // namespace

Result<std::optional<ProfileRequest>> ProfileRequestOf(const api::TrainingJob& job) {
  const auto found = job.metadata.annotations.find(std::string(api::kAnnotationProfile));
  if (found == job.metadata.annotations.end() || found->second.empty())
    return std::optional<ProfileRequest>();
  LOCKSTEP_TRY(const int steps, api::ParseProfileSteps(found->second));
  if (!job.spec.training) return Refusal("only a job with spec.training has steps that are known");
  if (!job.spec.checkpoint)
    return Refusal("needs spec.checkpoint: the traces are stored with the checkpoints");
  return std::optional(ProfileRequest{Truncate(found->second, kMaxText), steps});
}

}  // namespace lockstep::reconcile
