#pragma once
// A blocking queue between threads: any number of producers, any number of consumers. Unbounded; use it where
// the producers are bounded by what they wait for.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>

namespace lockstep {

template <typename T>
class Queue {
 public:
  void Push(T item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    changed_.notify_one();
  }

  // Waits until an item is there, the deadline passed, or `stop` is requested; nullopt in the latter two.
  [[nodiscard]] std::optional<T> PopUntil(std::chrono::steady_clock::time_point deadline,
                                          std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, std::move(stop), deadline, [this] { return !items_.empty(); }))
      return std::nullopt;
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<T> items_;
};

}  // namespace lockstep
