#pragma once
// How long jobs wait before they train, over all of them: in their queue, and from then on until a first
// round. Not synchronised: metrics.cc calls it under its lock.

#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "runtime/common/api/training_job.h"

namespace lockstep::telemetry {

class StartSeries {
 public:
  explicit StartSeries(prometheus::Registry& registry);

  // A pass has read the status `before` and written `now`.
  void Count(const api::TrainingJobStatus& before, const api::TrainingJobStatus& now);

 private:
  prometheus::Histogram& queue_seconds_;
  prometheus::Histogram& start_seconds_;
};

}  // namespace lockstep::telemetry
