#pragma once
// Keys waiting to be reconciled, with client-go's contract: a key waits at most once; it is never handed out
// twice at once; added again while it is worked on, it is handed out once more afterwards; delayed keys come
// when their earliest time has passed; failures come back no faster than 10 a second over all keys, after a
// first 100. Any thread.
//
// Each key is in one of these: queue_ (also in dirty_), processing_ (in dirty_ too if it was added again),
// delayed_.

#include <condition_variable>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "operator/controller/backoff.h"
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

  void Add(const std::string& key);
  void AddAfter(const std::string& key, std::chrono::milliseconds delay);
  // After a failure: with the key's back-off, which Forget resets, and in turn with all that failed.
  void AddRateLimited(const std::string& key);
  void Forget(const std::string& key);

  // Blocks until a key is due or `stop`; the caller must call Done with it.
  [[nodiscard]] std::optional<Item> Get(const std::stop_token& stop);
  // Like Get, without waiting.
  [[nodiscard]] std::optional<Item> TryGet();
  void Done(const std::string& key);

  [[nodiscard]] std::size_t depth() const;  // due keys that wait

 private:
  void AddLocked(const std::string& key) LOCKSTEP_REQUIRES(mutex_);
  void AddAfterLocked(const std::string& key, SteadyTime due) LOCKSTEP_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Item> TakeLocked() LOCKSTEP_REQUIRES(mutex_);
  void MoveDueLocked() LOCKSTEP_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::string> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, SteadyTime> dirty_ LOCKSTEP_GUARDED_BY(mutex_);  // since when
  std::unordered_set<std::string> processing_ LOCKSTEP_GUARDED_BY(mutex_);
  std::set<std::pair<SteadyTime, std::string>> delayed_ LOCKSTEP_GUARDED_BY(mutex_);
  std::unordered_map<std::string, SteadyTime> due_ LOCKSTEP_GUARDED_BY(mutex_);  // of each delayed key
  KeyBackoff backoff_ LOCKSTEP_GUARDED_BY(mutex_);
  TokenBucket failures_ LOCKSTEP_GUARDED_BY(mutex_){10, 100};
};

}  // namespace lockstep::controller
