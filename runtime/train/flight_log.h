#pragma once
// Says in the log at which collective this rank was when a round broke after a long wait, and stores the
// whole trace as flight/round-R-rank-N.json, for people and PyTorch's tools to compare with those of the
// others. All of it on a thread of its own: recovery does not wait. Any thread.

#include <cstdint>
#include <string>
#include <thread>

#include "runtime/common/base/mutex.h"

namespace lockstep::train {

class FlightLog {
 public:
  // `uri`: of the folder or store; empty: nothing is stored.
  explicit FlightLog(std::string uri);
  ~FlightLog();  // waits for what is being stored

  // `dump`: as c10d tells it.
  void Keep(int64_t round, int rank, std::string dump);

 private:
  const std::string uri_;
  Mutex mutex_;
  int kept_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::jthread store_ LOCKSTEP_GUARDED_BY(mutex_);  // one trace after the other
};

}  // namespace lockstep::train
