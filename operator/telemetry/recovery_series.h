#pragma once
// Counts the repaired failures by recovery level: for each job, and over all jobs with the duration of the
// recovery and the cause. Not synchronised: metrics.cc calls it under its lock.

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::telemetry {

class RecoverySeries {
 public:
  explicit RecoverySeries(prometheus::Registry& registry);

  // Counts each change of the job's rounds once: when it is repaired and a step was completed afterwards.
  void Count(const api::TrainingJob& job, const std::vector<rendezvous::RoundChange>& changes);
  void Forget(const std::string& uid);

 private:
  struct Series {
    prometheus::Histogram* seconds = nullptr;
    prometheus::Counter* lost_steps = nullptr;
    std::vector<prometheus::Counter*> recoveries;  // by FailureCause
  };
  struct Job {
    std::array<prometheus::Counter*, 4> recoveries;  // by rendezvous::RecoveryLevel
    std::set<int64_t> counted;                       // rounds that are still in the view
  };
  Job& JobOf(const api::TrainingJob& job);

  std::array<Series, 4> levels_;  // by rendezvous::RecoveryLevel
  prometheus::Family<prometheus::Counter>& of_jobs_;
  std::map<std::string, Job> jobs_;  // by uid
};

}  // namespace lockstep::telemetry
