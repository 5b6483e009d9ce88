#pragma once
// A blocking queue between threads, for any number of producers and consumers. Unbounded: use it only if the
// producers are bounded by other means.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <optional>
#include <stop_token>

#include "runtime/common/base/mutex.h"

namespace lockstep {

template <typename T>
class Queue {
 public:
  void Push(T item) {
    {
      const MutexLock lock(mutex_);
      items_.push_back(std::move(item));
    }
    changed_.notify_one();
  }

  // Waits for an item; nullopt once the deadline has passed or `stop` is requested.
  [[nodiscard]] std::optional<T> PopUntil(std::chrono::steady_clock::time_point deadline,
                                          std::stop_token stop) {
    MutexLock lock(mutex_);
    if (!changed_.wait_until(lock, std::move(stop), deadline,
                             [this]() LOCKSTEP_REQUIRES(mutex_) { return !items_.empty(); }))
      return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> items_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep
