#include "runtime/common/base/pause.h"

#include <condition_variable>

#include "runtime/common/base/mutex.h"

namespace lockstep {

bool PauseFor(Milliseconds time, const std::stop_token& stop) {
  Mutex mutex;
  std::condition_variable_any never;
  MutexLock lock(mutex);
  never.wait_for(lock, stop, time, [] { return false; });
  return !stop.stop_requested();
}

}  // namespace lockstep
