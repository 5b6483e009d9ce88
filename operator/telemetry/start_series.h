#pragma once
// How long jobs wait before they train, over all jobs: in their queue, and from admission to the first round.
// Not synchronised: metrics.cc calls it under its lock.

#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "runtime/common/api/training_job.h"

namespace lockstep::telemetry {

class StartSeries {
 public:
  explicit StartSeries(prometheus::Registry& registry);

  // Compares the status that a pass read (`before`) with the one it wrote (`now`).
  void Count(const api::TrainingJobStatus& before, const api::TrainingJobStatus& now);

 private:
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& start_seconds_;
};

}  // namespace lockstep::telemetry
