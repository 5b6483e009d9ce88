#pragma once
// A remote store in memory: counts reads, and fails, waits or changes when a test says so.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/common/base/strings.h"
#include "runtime/data/remote_objects.h"

namespace lockstep::data {

class MemoryObjects final : public RemoteObjects {
 public:
  std::map<std::string, std::string> contents;
  // Called before each read, under the lock; an error becomes the answer.
  std::function<Result<void>(const std::string& name, int64_t offset)> on_read;
  // (name, offset) of answered reads.
  std::multiset<std::pair<std::string, int64_t>> reads;
  std::vector<std::pair<std::string, int64_t>> order;  // the same, one after the other
  // Sizes that the store reports if they differ from the true ones.
  std::map<std::string, int64_t> listed_bytes;

  // A read of it is answered when it is released.
  void Hold(const std::string& name, int64_t offset) {
    const std::lock_guard lock(mutex_);
    held_.emplace(name, offset);
  }
  void ReleaseAll() {
    const std::lock_guard lock(mutex_);
    held_.clear();
    released_.notify_all();
  }
  [[nodiscard]] bool IsHolding() const { return is_holding_; }  // a read that waits
  std::multiset<std::pair<std::string, int64_t>> ReadsSoFar() {
    const std::lock_guard lock(mutex_);
    return reads;
  }

  Result<RemoteObject> Find(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    const auto found = contents.find(name);
    if (found == contents.end()) return Error{ErrorCode::kNotFound, name + ": not found"};
    return Describe(name, found->second);
  }
  Result<std::vector<RemoteObject>> List() override {
    const std::lock_guard lock(mutex_);
    std::vector<RemoteObject> objects;
    for (const auto& [name, content] : contents) objects.push_back(Describe(name, content));
    return objects;
  }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    std::unique_lock lock(mutex_);
    if (held_.contains({name, offset})) is_holding_ = true;
    released_.wait(lock, [&] { return !held_.contains({name, offset}); });
    if (on_read) LOCKSTEP_TRY(on_read(name, offset));
    const std::string& content = contents[name];
    for (std::size_t i = 0; i < target.size(); ++i) {  // as S3: a short answer is not noticed
      const std::size_t at = static_cast<std::size_t>(offset) + i;
      target[i] = at < content.size() ? content[at] : '?';
    }
    reads.emplace(name, offset);
    order.emplace_back(name, offset);
    return {};
  }

 private:
  RemoteObject Describe(const std::string& name, const std::string& content) {
    const auto listed = listed_bytes.find(name);
    const auto bytes = static_cast<int64_t>(content.size());
    return {name, listed == listed_bytes.end() ? bytes : listed->second, StableHash(content)};
  }

  std::mutex mutex_;
  std::condition_variable released_;
  std::atomic<bool> is_holding_ = false;
  std::set<std::pair<std::string, int64_t>> held_;  // GUARDED_BY(mutex_)
};

// A connection to a store that outlives the connection.
class MemoryConnection final : public RemoteObjects {
 public:
  explicit MemoryConnection(MemoryObjects& store) : store_(store) {}
  Result<RemoteObject> Find(const std::string& name) override { return store_.Find(name); }
  Result<std::vector<RemoteObject>> List() override { return store_.List(); }
  Result<void> Read(const std::string& name, int64_t offset, std::span<char> target) override {
    return store_.Read(name, offset, target);
  }

 private:
  MemoryObjects& store_;
};

}  // namespace lockstep::data
