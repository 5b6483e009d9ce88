#include <iostream>

#include "runtime/tools/kubectl_plugin/commands.h"
#include "runtime/tools/kubectl_plugin/lookup.h"

namespace lockstep::kubectl_plugin {
namespace {

std::string CheckpointsText(const api::TrainingJob& job) {
  if (!job.spec.checkpoint) return "";
  const api::CheckpointSpec& checkpoint = *job.spec.checkpoint;
  return checkpoint.delete_with_job ? ", and its checkpoints below " + checkpoint.uri
                                    : "; its checkpoints remain below " + checkpoint.uri;
}

}  // namespace

Result<int> Delete(const Kubectl& kubectl, const std::vector<std::string>& names) {
  std::vector<api::TrainingJob> jobs;
  for (const std::string& name : names) {  // looks all of them up before it deletes one
    LOCKSTEP_TRY(jobs.emplace_back(), GetJob(kubectl, name));
  }
  for (const api::TrainingJob& job : jobs) {
    // Without a deadline: waits until the job's pods have ended, up to their grace period.
    LOCKSTEP_TRY(kubectl.Stream({"delete", kJobs, job.metadata.name}, [](std::string_view) { return true; }));
    std::cout << job.metadata.name << " is deleted" << CheckpointsText(job) << std::endl;
  }
  return 0;
}

}  // namespace lockstep::kubectl_plugin
