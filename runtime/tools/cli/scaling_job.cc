#include "runtime/tools/cli/scaling_job.h"

#include <algorithm>
#include <charconv>

#include "runtime/common/api/validate.h"
#include "runtime/common/base/strings.h"

namespace lockstep::cli {
namespace {

constexpr int kMostReplicas = 10'000;
// The most that spec.training.steps allows.
constexpr int64_t kEndlessSteps = 1'000'000'000;

}  // namespace

Result<std::vector<int>> ReplicasFrom(const std::string& text) {
  std::vector<int> sizes;
  for (const std::string& part : Split(text, ',')) {
    int size = 0;
    const char* end = part.data() + part.size();
    const auto parsed = std::from_chars(part.data(), end, size);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
    if (!is_number || size < 1 || size > kMostReplicas ||
        std::find(sizes.begin(), sizes.end(), size) != sizes.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   "must be different numbers from 1 to 10000 with commas between, such as 1,2,4, not \"" +
                       text + "\""};
    }
    sizes.push_back(size);
  }
  std::sort(sizes.begin(), sizes.end());
  return sizes;
}

std::vector<std::string> ProblemsOfSizes(const api::TrainingJob& job, const std::vector<int>& replicas) {
  if (!job.spec.training) {
    return {"spec.training: is required: " + job.metadata.name +
            " runs a program of your own, which may write files while it is measured. In a cluster `kubectl "
            "lockstep scaling " +
            job.metadata.name + "` shows its speed, if it joins with the Python package"};
  }
  std::vector<std::string> problems;
  for (const int size : replicas) {
    api::TrainingJob sized = job;
    sized.spec.worker.replicas = size;
    for (const std::string& problem : api::Validate(sized))
      problems.push_back("--replicas " + std::to_string(size) + ": " + problem);
  }
  return problems;
}

api::TrainingJob JobOfSize(api::TrainingJob job, int replicas, const std::string& folder) {
  api::TrainingJobSpec& spec = job.spec;
  spec.worker.replicas = replicas;
  spec.standby_replicas = 0;
  spec.elastic_policy.reset();
  spec.checkpoint.reset();
  spec.failure_policy.max_restarts = 0;
  spec.rendezvous.heartbeat_interval_seconds = 1;  // measurements arrive with heartbeats
  api::TrainingSpec& training = *spec.training;
  training.epochs.reset();
  training.steps = kEndlessSteps;
  training.evaluation.reset();
  training.early_stop.reset();
  if (api::IsRemote(training.data)) {
    training.data.secret_ref.reset();  // the credentials come from the shell
    if (training.data.cache.empty()) training.data.cache = folder + "/data";
  }
  return job;
}

}  // namespace lockstep::cli
