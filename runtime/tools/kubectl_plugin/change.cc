#include <iostream>

#include "runtime/common/command_line/text.h"
#include "runtime/tools/kubectl_plugin/change_rules.h"
#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

Result<void> SetSuspend(const Kubectl& kubectl, const std::string& job, bool suspend) {
  const Json patch = {{"spec", {{"suspend", suspend}}}};
  LOCKSTEP_TRY(kubectl.Run({"patch", kJobs, job, "--type=merge", "--patch=" + DumpJson(patch)}));
  return {};
}

}  // namespace

Result<int> Suspend(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(const bool is_to_do, MaySuspend(job));
  if (!is_to_do) {
    std::cout << name << " is suspended already\n";
    return 0;
  }
  LOCKSTEP_TRY(SetSuspend(kubectl, name, true));
  const bool saves = job.spec.training && job.spec.checkpoint;
  std::cout << name << " is suspended: " << (saves ? "it saves a checkpoint, then " : "")
            << "its pods are removed; `kubectl lockstep resume " << name << "` continues it\n";
  return 0;
}

Result<int> Resume(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(const bool is_to_do, MayResume(job));
  if (is_to_do) LOCKSTEP_TRY(SetSuspend(kubectl, name, false));
  std::cout << name << (is_to_do ? " is resumed\n" : " is not suspended\n");
  return 0;
}

Result<int> Scale(const Kubectl& kubectl, const std::string& name, int32_t replicas) {
  LOCKSTEP_TRY(const api::TrainingJob job, GetJob(kubectl, name));
  LOCKSTEP_TRY(const bool is_to_do, MayScale(job, replicas));
  if (!is_to_do) {
    std::cout << name << " has " << command_line::CountText(replicas, "pod") << " already\n";
    return 0;
  }
  // Uses the subresource, because a user may have permission only to scale. Fails if somebody else changed it
  // first.
  LOCKSTEP_TRY(kubectl.Run({"scale", kJobs, name, "--replicas=" + std::to_string(replicas),
                            "--current-replicas=" + std::to_string(job.spec.worker.replicas)}));
  std::cout << name << " is scaled from " << job.spec.worker.replicas << " to "
            << command_line::CountText(replicas, "pod") << "\n";
  return 0;
}

}  // namespace lockstep::kubectl_plugin
