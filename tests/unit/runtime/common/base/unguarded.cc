// Not part of any target: ../CMakeLists.txt lists what clang-tidy must find in it.

#include "runtime/common/base/mutex.h"

namespace lockstep {

class Unguarded {
 public:
  void Write() { count_ = 1; }
  void Call() { AddLocked(); }
  int Read() {
    MutexLock lock(mutex_);
    lock.unlock();
    return count_;
  }

 private:
  void AddLocked() LOCKSTEP_REQUIRES(mutex_) { ++count_; }

  Mutex mutex_;
  int count_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
};

}  // namespace lockstep
