#pragma once
// ShardExchange between checkpointers of one process. Any thread.

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>

#include "runtime/checkpoint/checkpointer.h"

namespace lockstep::checkpoint {

class MemoryExchange final : public ShardExchange {
 public:
  Result<void> Publish(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
    return {};
  }
  Result<std::string> Wait(const std::string& key, std::chrono::milliseconds limit) override {
    std::unique_lock lock(mutex_);
    ++waits_;
    if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key); })) {
      return Error{ErrorCode::kDeadlineExceeded, "not yet"};
    }
    return values_[key];
  }
  bool IsOver() override { return false; }
  [[nodiscard]] int waits() {
    const std::lock_guard lock(mutex_);
    return waits_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  int waits_ = 0;
};

}  // namespace lockstep::checkpoint
