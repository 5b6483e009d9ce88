#include "runtime/tools/kubectl_plugin/change_rules.h"

#include "runtime/common/api/conditions.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/time_text.h"
#include "runtime/common/command_line/text.h"

namespace lockstep::kubectl_plugin {
namespace {

Error Refused(const api::TrainingJob& job, const std::string& why) {
  return {ErrorCode::kInvalidArgument, job.metadata.name + " " + why};
}

Result<void> MustNotHaveEnded(const api::TrainingJob& job) {
  if (!api::IsFinished(job.status.conditions)) return {};
  return Refused(job, "has ended (" + job.status.state + "): none of its pods runs");
}

}  // namespace

Result<bool> MaySuspend(const api::TrainingJob& job) {
  LOCKSTEP_TRY(MustNotHaveEnded(job));
  return !job.spec.suspend;
}

Result<bool> MayResume(const api::TrainingJob& job) {
  LOCKSTEP_TRY(MustNotHaveEnded(job));
  return job.spec.suspend;
}

Result<bool> MayScale(const api::TrainingJob& job, int32_t replicas) {
  LOCKSTEP_TRY(MustNotHaveEnded(job));
  const api::TrainingJobSpec& spec = job.spec;
  if (replicas == spec.worker.replicas) return false;
  if (!spec.elastic_policy && !spec.suspend) {
    return Refused(job, "has a fixed size of " + command_line::CountText(spec.worker.replicas, "pod") +
                            ": give it spec.elasticPolicy, or suspend it first");
  }
  if (replicas < spec.min_replicas() && spec.elastic_policy) {
    return Refused(job, "has spec.elasticPolicy.minReplicas " + std::to_string(spec.min_replicas()) + ": " +
                            command_line::CountText(replicas, "pod") + " would be too few");
  }
  if (replicas > spec.max_replicas() && spec.elastic_policy) {
    return Refused(job, "has spec.elasticPolicy.maxReplicas " + std::to_string(spec.max_replicas()) + ": " +
                            command_line::CountText(replicas, "pod") + " would be too many");
  }
  return true;
}

Result<void> MayCheckpoint(const api::TrainingJob& job) {
  LOCKSTEP_TRY(MustNotHaveEnded(job));
  if (job.spec.training && !job.spec.checkpoint)
    return Refused(job, "has no spec.checkpoint: there is no place to save to");
  if (job.spec.suspend) return Refused(job, "is suspended: none of its pods runs");
  return {};
}

Result<void> MayProfile(const api::TrainingJob& job) {
  LOCKSTEP_TRY(MustNotHaveEnded(job));
  if (!job.spec.training) return Refused(job, "runs a program of your own, whose steps are not known");
  if (!job.spec.checkpoint) return Refused(job, "has no spec.checkpoint: there is no place for the traces");
  if (job.spec.suspend) return Refused(job, "is suspended: it makes no steps");
  return {};
}

WallTime TimeOfSaveRequest(const Json& object, WallTime fallback) {
  const Json* fields = FindJson(object, {"metadata", "managedFields"});
  if (fields == nullptr) return fallback;
  const std::string key = "f:" + std::string(api::kAnnotationSave);
  for (const Json& entry : *fields) {
    if (FindJson(entry, {"fieldsV1", "f:metadata", "f:annotations", key}) == nullptr) continue;
    const auto time = ParseTime(StringAt(entry, {"time"}));
    if (time.ok()) return *time;
  }
  return fallback;
}

Result<bool> IsAnswered(const api::TrainingJob& job, WallTime requested,
                        const std::optional<api::CheckpointStatus>& before) {
  const auto& checkpoint = job.status.checkpoint;
  // Times in the API have whole seconds.
  const WallTime second = std::chrono::floor<std::chrono::seconds>(requested);
  if (checkpoint && checkpoint->time && *checkpoint->time >= second && checkpoint != before) return true;
  if (api::IsFinished(job.status.conditions)) {
    return Error{ErrorCode::kAborted,
                 job.metadata.name + " ended (" + job.status.state + ") before it saved the checkpoint"};
  }
  if (job.spec.suspend && api::IsTrue(job.status.conditions, api::condition::kSuspended)) {
    return Error{ErrorCode::kAborted, job.metadata.name + " was suspended before it saved the checkpoint"};
  }
  return false;
}

}  // namespace lockstep::kubectl_plugin
