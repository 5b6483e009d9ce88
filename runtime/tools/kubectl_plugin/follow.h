#pragma once
// Shows a job to a person, once or until it ends. One thread.

#include <string>

#include "runtime/common/api/training_job.h"
#include "runtime/tools/kubectl_plugin/kubectl.h"
#include "runtime/tools/kubectl_plugin/rank_places.h"

namespace lockstep::kubectl_plugin {

// Prints a job; on a terminal each call replaces the previous output.
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
  std::string namespace_name;  // empty: the default of kubectl
};

// Prints the job each time that it changes, until it ends. Exit code 0 if it is complete, 1 if it failed.
[[nodiscard]] Result<int> Follow(const Kubectl& kubectl, const JobName& job);

}  // namespace lockstep::kubectl_plugin
