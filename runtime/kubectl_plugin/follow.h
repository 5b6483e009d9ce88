#pragma once
// Shows a job to a person, once or until it ends. One thread.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/kubectl_plugin/kubectl.h"
#include "runtime/kubectl_plugin/rank_places.h"

namespace lockstep::kubectl_plugin {

// Draws a job; on a terminal, the next time over the last.
class JobView {
 public:
  explicit JobView(const Kubectl& kubectl) : kubectl_(kubectl) {}

  Result<void> Draw(const api::TrainingJob& job);

 private:
  const Kubectl& kubectl_;
  RankPlaces places_;
  bool is_drawn_ = false;
};

struct JobName {
  std::string name;
  std::string namespace_name;  // empty: the one that kubectl chooses
};

// Draws the job each time that it changes, until it ends. The exit code: 0 where it is complete, 1 where it
// failed.
[[nodiscard]] Result<int> Follow(const Kubectl& kubectl, const JobName& job);

}  // namespace lockstep::kubectl_plugin
