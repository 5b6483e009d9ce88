#pragma once
// How fast each job trained with each number of ranks, by status.scaling, which bounds the number of series.
// Not synchronised: metrics.cc calls it under its lock.

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

#include "runtime/common/api/training_job.h"

namespace lockstep::telemetry {

class ScalingSeries {
 public:
  explicit ScalingSeries(prometheus::Registry& registry);

  void Set(const api::TrainingJob& job, const std::vector<api::ScalingRecord>& records);
  void Remove(const std::string& uid);

 private:
  struct Size {
    prometheus::Gauge* samples_per_second = nullptr;
    prometheus::Gauge* efficiency = nullptr;
  };
  using Sizes = std::map<int32_t, Size>;  // by world size
  Size Add(const api::TrainingJob& job, int32_t world_size);
  void Remove(const Size& size);

  prometheus::Family<prometheus::Gauge>& samples_per_second_;
  prometheus::Family<prometheus::Gauge>& efficiency_;
  std::map<std::string, Sizes> jobs_;  // by uid
};

}  // namespace lockstep::telemetry
