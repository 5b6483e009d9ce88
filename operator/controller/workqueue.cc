#include "operator/controller/workqueue.h"

#include <algorithm>
#include <utility>

namespace lockstep::controller {

void WorkQueue::Add(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    AddLocked(key);
  }
  wake_.notify_one();
}

void WorkQueue::AddAfter(const std::string& key, std::chrono::milliseconds delay) {
  if (delay.count() <= 0) return Add(key);
  {
    const MutexLock lock(mutex_);
    AddAfterLocked(key, clock_.Steady() + delay);
  }
  wake_.notify_one();
}

void WorkQueue::AddRateLimited(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.Steady();
    AddAfterLocked(key, now + std::max(backoff_.Next(key), failures_.Take(now)));
  }
  wake_.notify_one();
}

void WorkQueue::Forget(const std::string& key) {
  const MutexLock lock(mutex_);
  backoff_.Forget(key);
}

std::optional<WorkQueue::Item> WorkQueue::Get(const std::stop_token& stop) {
  MutexLock lock(mutex_);
  while (!stop.stop_requested()) {
    if (auto item = TakeLocked()) return item;
    if (delayed_.empty()) {
      wake_.wait(lock, stop,
                 [this]() LOCKSTEP_REQUIRES(mutex_) { return !queue_.empty() || !delayed_.empty(); });
    } else {
      // Also wakes where an earlier key came meanwhile: the wait must become shorter.
      const SteadyTime due = delayed_.begin()->first;
      wake_.wait_for(lock, stop, due - clock_.Steady(), [&]() LOCKSTEP_REQUIRES(mutex_) {
        return !queue_.empty() || delayed_.empty() || delayed_.begin()->first != due;
      });
    }
  }
  return std::nullopt;
}

std::optional<WorkQueue::Item> WorkQueue::TryGet() {
  const MutexLock lock(mutex_);
  return TakeLocked();
}

void WorkQueue::Done(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    processing_.erase(key);
    if (!dirty_.contains(key)) return;
    queue_.push_back(key);
  }
  wake_.notify_one();
}

std::size_t WorkQueue::depth() const {
  const MutexLock lock(mutex_);
  return queue_.size();
}

void WorkQueue::AddLocked(const std::string& key) {
  if (!dirty_.emplace(key, clock_.Steady()).second) return;
  if (!processing_.contains(key)) queue_.push_back(key);
}

void WorkQueue::AddAfterLocked(const std::string& key, SteadyTime due) {
  const auto known = due_.find(key);
  if (known != due_.end()) {
    if (known->second <= due) return;
    delayed_.erase({known->second, key});
  }
  due_[key] = due;
  delayed_.emplace(due, key);
}

void WorkQueue::MoveDueLocked() {
  const SteadyTime now = clock_.Steady();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::string key = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    due_.erase(key);
    AddLocked(key);
  }
}

std::optional<WorkQueue::Item> WorkQueue::TakeLocked() {
  MoveDueLocked();
  if (queue_.empty()) return std::nullopt;
  std::string key = std::move(queue_.front());
  queue_.pop_front();
  const auto dirty = dirty_.find(key);
  const auto waited = clock_.Steady() - dirty->second;
  dirty_.erase(dirty);
  processing_.insert(key);
  // Several keys may have become due at once, and one notice went out.
  if (!queue_.empty()) wake_.notify_one();
  return Item{std::move(key), waited};
}

}  // namespace lockstep::controller
