#pragma once
// The queue of keys to reconcile, with the contract of client-go's work queue:
//   - a key is in the queue at most once, and never returned to two workers at the same time;
//   - a key that is added while it is processed is returned once more afterwards;
//   - a delayed key is returned once its earliest time has passed;
//   - failed keys are returned at most 10 times a second over all keys, after a first burst of 100.
// Keys of low priority wait for the others, except for every fourth call. A key that is added with both
// priorities has the normal one. Any thread.
//
// Each key is in one of: queues_ (also in dirty_), processing_ (also in dirty_ if it was added again),
// delayed_.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "operator/controller/backoff.h"
#include "operator/controller/reconciler.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/token_bucket.h"

namespace lockstep::controller {

class WorkQueue {
 public:
  struct Item {
    std::string key;
    SteadyTime::duration waited{};
  };

  explicit WorkQueue(const Clock& clock) : clock_(clock) {}

  void Add(const std::string& key, Priority priority = Priority::kNormal);
  void AddAfter(const std::string& key, std::chrono::milliseconds delay,
                Priority priority = Priority::kNormal);
  // After a failure: delayed by the key's back-off (reset by Forget) and by the rate limit over all failed
  // keys.
  void AddRateLimited(const std::string& key, Priority priority = Priority::kNormal);
  void Forget(const std::string& key);

  // Blocks until a key is due or `stop`. The caller must call Done with the key.
  [[nodiscard]] std::optional<Item> Get(const std::stop_token& stop);
  // Like Get, without waiting.
  [[nodiscard]] std::optional<Item> TryGet();
  void Done(const std::string& key);

  [[nodiscard]] std::size_t depth() const;  // due keys that no worker has taken

 private:
  // A queued key with its priority and the time since which, or until which, it waits.
  struct Waiting {
    SteadyTime time;
    Priority priority;
  };

  void AddLocked(const std::string& key, Priority priority) LOCKSTEP_REQUIRES(mutex_);
  void AddAfterLocked(const std::string& key, SteadyTime due, Priority priority) LOCKSTEP_REQUIRES(mutex_);
  void Raise(const std::string& key, Waiting& waiting) LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] bool IsEmpty() const LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] std::deque<std::string>& NextQueue() LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] std::deque<std::string>& QueueOf(Priority priority) LOCKSTEP_REQUIRES(mutex_) {
    return queues_[static_cast<std::size_t>(priority)];
  }
  [[nodiscard]] std::optional<Item> TakeLocked() LOCKSTEP_REQUIRES(mutex_);
  void MoveDueLocked() LOCKSTEP_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::array<std::deque<std::string>, 2> queues_ LOCKSTEP_GUARDED_BY(mutex_);  // by priority
  uint64_t turns_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Waiting> dirty_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_set<std::string> processing_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<std::pair<SteadyTime, std::string>> delayed_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, Waiting> due_ LOCKSTEP_GUARDED_BY(mutex_);  // due time of each delayed key
  KeyBackoff backoff_ LOCKSTEP_GUARDED_BY(mutex_);
  TokenBucket failures_ LOCKSTEP_GUARDED_BY(mutex_){10, 100};
};

}  // namespace lockstep::controller
