#pragma once
// How failures were repaired, for each rung of the ladder: how many of each job, and over all jobs how long the repairs
// took and what the causes were. Not synchronised: metrics.cc calls it under its lock.

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

  // Counts each change of the job's rounds once: when it is mended and a step was made again.
  void Count(const api::TrainingJob& job, const std::vector<rendezvous::RoundChange>& changes);
  void Forget(const std::string& uid);

 private:
  struct Series {
    prometheus::Histogram* seconds = nullptr;
    prometheus::Counter* lost_steps = nullptr;
    std::map<api::FailureCause, prometheus::Counter*> recoveries;
  };
  struct Job {
    std::array<prometheus::Counter*, 4> recoveries;  // by rendezvous::Rung
    std::set<int64_t> counted;                       // rounds that are still among the changes
  };
  Job& JobOf(const api::TrainingJob& job);

  std::array<Series, 4> rungs_;  // by rendezvous::Rung
  prometheus::Family<prometheus::Counter>& of_jobs_;
  std::map<std::string, Job> jobs_;  // by uid
};

}  // namespace lockstep::telemetry
