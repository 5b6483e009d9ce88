#pragma once
// Reads from the cluster what the verbs need.

#include <chrono>
#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/tools/kubectl_plugin/kubectl.h"
#include "runtime/tools/kubectl_plugin/pod_rows.h"
#include "runtime/tools/kubectl_plugin/rank_places.h"

namespace lockstep::kubectl_plugin {

// With the group, because another kind may have the same name.
inline constexpr const char* kJobs = "distributedtrainingjobs.lockstep.dev";

// The API server ends a watch regularly; a proxy may end each at once.
inline constexpr std::chrono::seconds kBetweenWatches{1};

// Lenient, because this program may have another version than the operator.
[[nodiscard]] api::TrainingJob JobFrom(const Json& object);
[[nodiscard]] Result<api::TrainingJob> GetJob(const Kubectl& kubectl, const std::string& name);
[[nodiscard]] Result<std::vector<PodRow>> GetPods(const Kubectl& kubectl, const api::TrainingJob& job);
// From the pods' logs; pods that cannot be read now are skipped.
[[nodiscard]] RankPlaces FindPlaces(const Kubectl& kubectl, const api::TrainingJob& job);

// Splits the input into lines and passes them on without their newlines.
class LineReader {
 public:
  template <typename OnLine>
  void Add(std::string_view bytes, const OnLine& on_line) {
    rest_ += bytes;
    std::size_t begin = 0;
    for (std::size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', begin)) {
      on_line(std::string_view(rest_).substr(begin, end - begin));
      begin = end + 1;
    }
    rest_.erase(0, begin);
  }

 private:
  std::string rest_;
};

}  // namespace lockstep::kubectl_plugin
