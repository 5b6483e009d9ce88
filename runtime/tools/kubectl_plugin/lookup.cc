#include "runtime/tools/kubectl_plugin/lookup.h"

#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job_json.h"

namespace lockstep::kubectl_plugin {
namespace {

using namespace std::chrono_literals;

// A supervisor logs the place of each rank once per round, and little else; ranks with much output have
// labels on their lines.
constexpr const char* kSearched = "--tail=2000";
constexpr auto kSearchTime = 20s;

}  // namespace

api::TrainingJob JobFrom(const Json& object) {
  std::vector<std::string> violations;
  return api::TrainingJobFromJson(object, violations);
}

Result<api::TrainingJob> GetJob(const Kubectl& kubectl, const std::string& name) {
  LOCKSTEP_TRY(const std::string text, kubectl.Run({"get", kJobs, name, "--output=json"}));
  LOCKSTEP_TRY(const Json object, ParseJson(text));
  return JobFrom(object);
}

Result<std::vector<PodRow>> GetPods(const Kubectl& kubectl, const api::TrainingJob& job) {
  LOCKSTEP_TRY(const std::string text,
               kubectl.Run({"get", "pods", "--namespace=" + job.metadata.namespace_name,
                            "--selector=" + api::WorkerSelector(job.metadata.name), "--output=json"}));
  LOCKSTEP_TRY(const Json list, ParseJson(text));
  return PodRowsFrom(list, job.spec.worker.container_name);
}

RankPlaces FindPlaces(const Kubectl& kubectl, const api::TrainingJob& job) {
  RankPlaces places;
  LineReader reader;
  const auto take = [&](std::string_view bytes) {
    reader.Add(bytes, [&places](std::string_view line) {
      if (const auto of_pod = SplitPrefix(line)) places.Take(*of_pod);
    });
    return true;
  };
  // An unreachable pod must neither hide the others nor delay the command for long.
  (void)kubectl.Stream(
      {"logs", "--namespace=" + job.metadata.namespace_name,
       "--selector=" + api::WorkerSelector(job.metadata.name),
       "--container=" + job.spec.worker.container_name, kSearched, "--prefix", "--ignore-errors"},
      take, std::chrono::steady_clock::now() + kSearchTime);
  return places;
}

}  // namespace lockstep::kubectl_plugin
