#pragma once
// When a round breaks after a long wait, logs the collective that this rank was in, and stores the whole
// trace as flight/round-R-rank-N.json. People and PyTorch's tools compare it with the traces of the other
// ranks. Runs on its own thread, so recovery does not wait for it. Any thread.

#include <string>
#include <thread>

#include "runtime/comm/device_group.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::train {

class FlightLog {
 public:
  // `uri` is a folder or a store. Empty: nothing is stored.
  explicit FlightLog(std::string uri);
  ~FlightLog();  // waits for what is being stored

  void Keep(comm::BrokenTrace trace);

 private:
  const std::string uri_;
  Mutex mutex_;
  int kept_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::jthread store_ LOCKSTEP_GUARDED_BY(mutex_);  // one trace after the other
};

}  // namespace lockstep::train
