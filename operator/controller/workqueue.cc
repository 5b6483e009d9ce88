#include "operator/controller/workqueue.h"

#include <algorithm>
#include <utility>

namespace lockstep::controller {
namespace {

// One in this many calls returns a key of low priority, if there is one.
constexpr uint64_t kTurnsPerLow = 4;

}  // namespace

void WorkQueue::Add(const std::string& key, Priority priority) {
  {
    const MutexLock lock(mutex_);
    AddLocked(key, priority);
  }
  wake_.notify_one();
}

void WorkQueue::AddAfter(const std::string& key, std::chrono::milliseconds delay, Priority priority) {
  if (delay.count() <= 0) return Add(key, priority);
  {
    const MutexLock lock(mutex_);
    AddAfterLocked(key, clock_.Steady() + delay, priority);
  }
  wake_.notify_one();
}

void WorkQueue::AddRateLimited(const std::string& key, Priority priority) {
  {
    const MutexLock lock(mutex_);
    const SteadyTime now = clock_.Steady();
    AddAfterLocked(key, now + std::max(backoff_.Next(key), failures_.Take(now)), priority);
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
      wake_.wait(lock, stop, [this]() LOCKSTEP_REQUIRES(mutex_) { return !IsEmpty() || !delayed_.empty(); });
    } else {
      // Also wakes when an earlier key was added meanwhile, because the wait must become shorter.
      const SteadyTime due = delayed_.begin()->first;
      wake_.wait_for(lock, stop, due - clock_.Steady(), [&]() LOCKSTEP_REQUIRES(mutex_) {
        return !IsEmpty() || delayed_.empty() || delayed_.begin()->first != due;
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
    const auto dirty = dirty_.find(key);
    if (dirty == dirty_.end()) return;
    QueueOf(dirty->second.priority).push_back(key);
  }
  wake_.notify_one();
}

std::size_t WorkQueue::depth() const {
  const MutexLock lock(mutex_);
  return queues_[0].size() + queues_[1].size();
}

void WorkQueue::AddLocked(const std::string& key, Priority priority) {
  const auto [dirty, is_new] = dirty_.try_emplace(key, Waiting{clock_.Steady(), priority});
  if (!is_new) return priority == Priority::kNormal ? Raise(key, dirty->second) : void();
  if (!processing_.contains(key)) QueueOf(priority).push_back(key);
}

void WorkQueue::Raise(const std::string& key, Waiting& waiting) {
  if (std::exchange(waiting.priority, Priority::kNormal) == Priority::kNormal) return;
  if (std::erase(QueueOf(Priority::kLow), key) > 0) QueueOf(Priority::kNormal).push_back(key);
}

void WorkQueue::AddAfterLocked(const std::string& key, SteadyTime due, Priority priority) {
  const auto [known, is_new] = due_.try_emplace(key, Waiting{due, priority});
  if (!is_new) {
    known->second.priority = std::min(known->second.priority, priority);
    if (known->second.time <= due) return;
    delayed_.erase({std::exchange(known->second.time, due), key});
  }
  delayed_.emplace(due, key);
}

void WorkQueue::MoveDueLocked() {
  const SteadyTime now = clock_.Steady();
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const std::string key = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    const auto due = due_.find(key);
    AddLocked(key, due->second.priority);
    due_.erase(due);
  }
}

bool WorkQueue::IsEmpty() const {
  return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue.empty(); });
}

std::deque<std::string>& WorkQueue::NextQueue() {
  auto& [normal, low] = queues_;
  if (normal.empty() || low.empty()) return normal.empty() ? low : normal;
  return ++turns_ % kTurnsPerLow == 0 ? low : normal;
}

std::optional<WorkQueue::Item> WorkQueue::TakeLocked() {
  MoveDueLocked();
  if (IsEmpty()) return std::nullopt;
  std::deque<std::string>& queue = NextQueue();
  std::string key = std::move(queue.front());
  queue.pop_front();
  const auto dirty = dirty_.find(key);
  const auto waited = clock_.Steady() - dirty->second.time;
  dirty_.erase(dirty);
  processing_.insert(key);
  // Several keys may have become due at once, but only one waiter was notified.
  if (!IsEmpty()) wake_.notify_one();
  return Item{std::move(key), waited};
}

}  // namespace lockstep::controller
