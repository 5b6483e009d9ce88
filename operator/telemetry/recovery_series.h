#pragma once
// How failures were mended, over all jobs, for each rung of the ladder: how long it took, and what their
// causes were. Not synchronised: metrics.cc calls it under its lock.

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
  void Count(const std::string& uid, const std::vector<rendezvous::RoundChange>& changes);
  void Forget(const std::string& uid) { counted_.erase(uid); }

 private:
  struct Series {
    prometheus::Histogram* seconds = nullptr;
    prometheus::Counter* lost_steps = nullptr;
    std::map<api::FailureCause, prometheus::Counter*> recoveries;
  };
  std::array<Series, 4> rungs_;                       // by rendezvous::Rung
  std::map<std::string, std::set<int64_t>> counted_;  // by uid: rounds that are still among the changes
};

}  // namespace lockstep::telemetry
