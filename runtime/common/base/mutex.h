#pragma once
// A mutex whose rules clang checks: which data it guards, and which functions need it held. `.ci/check-tidy`
// runs that analysis (-Wthread-safety); GCC ignores the annotations. Any thread.
//
//   Mutex mutex_;
//   std::condition_variable_any changed_;
//   int count_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
//
//   void AddLocked() LOCKSTEP_REQUIRES(mutex_);
//
//   MutexLock lock(mutex_);
//   changed_.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex_) { return count_ > 0; });

#include <mutex>

#ifdef __clang__
#define LOCKSTEP_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define LOCKSTEP_THREAD_SAFETY(attribute)
#endif

// For a variable: accessed only with the mutex held.
#define LOCKSTEP_GUARDED_BY(mutex) LOCKSTEP_THREAD_SAFETY(guarded_by(mutex))
// For a function: called only with the mutex held.
#define LOCKSTEP_REQUIRES(mutex) LOCKSTEP_THREAD_SAFETY(requires_capability(mutex))

namespace lockstep {

class LOCKSTEP_THREAD_SAFETY(capability("mutex")) Mutex {
 public:
  // Names required by the standard library.
  void lock() LOCKSTEP_THREAD_SAFETY(acquire_capability()) { mutex_.lock(); }
  void unlock() LOCKSTEP_THREAD_SAFETY(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

// Holds a mutex for its scope. A condition variable may release it during a wait.
class LOCKSTEP_THREAD_SAFETY(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) LOCKSTEP_THREAD_SAFETY(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() LOCKSTEP_THREAD_SAFETY(release_capability()) {
    if (is_held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() LOCKSTEP_THREAD_SAFETY(acquire_capability()) {
    mutex_.lock();
    is_held_ = true;
  }
  void unlock() LOCKSTEP_THREAD_SAFETY(release_capability()) {
    is_held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool is_held_ = true;
};

}  // namespace lockstep
