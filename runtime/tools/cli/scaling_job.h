#pragma once
// Which sizes `lockstep scaling` measures, and the job that runs with each. Pure.

#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/base/result.h"

namespace lockstep::cli {

// "1,2,4" as numbers of replicas, smallest first.
[[nodiscard]] Result<std::vector<int>> ReplicasFrom(const std::string& text);

// Why the job cannot be measured with these numbers of replicas; empty: it can.
[[nodiscard]] std::vector<std::string> ProblemsOfSizes(const api::TrainingJob& job,
                                                       const std::vector<int>& replicas);

// The job with exactly so many replicas: it trains until it is stopped, stores nothing outside `folder`, and
// replaces no worker.
[[nodiscard]] api::TrainingJob JobOfSize(api::TrainingJob job, int replicas, const std::string& folder);

}  // namespace lockstep::cli
