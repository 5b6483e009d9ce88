#pragma once
// An in-memory ObjectStore for the tests of removals. One thread.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/checkpoint/object_store.h"

namespace lockstep::testing {

// A store in which the test sets the age of objects and the names of unfinished uploads.
class AgedStore final : public checkpoint::ObjectStore {
 public:
  Result<void> Put(const std::string& name, std::string_view content) override {
    objects_[name] = {std::string(content), now};
    return {};
  }
  Result<std::string> Get(const std::string& name) override {
    const auto found = objects_.find(name);
    if (found == objects_.end()) return Error{ErrorCode::kNotFound, name};
    return found->second.first;
  }
  Result<void> Read(const std::string&, int64_t, std::span<char>) override { return {}; }
  Result<std::vector<checkpoint::ObjectInfo>> List() override {
    std::vector<checkpoint::ObjectInfo> found;
    for (const auto& [name, object] : objects_)
      found.push_back({name, static_cast<int64_t>(object.first.size()), object.second});
    return found;
  }
  Result<void> Delete(const std::string& name) override {
    if (deletions_left-- <= 0) return Error{ErrorCode::kUnavailable, "the store is away"};
    objects_.erase(name);
    return {};
  }
  Result<int> AbortUploads(const checkpoint::IsOrphan& is_orphan) override {
    ++asked_to_abort;
    if (uploads_error) return *uploads_error;
    return static_cast<int>(std::erase_if(uploads, is_orphan));
  }
  [[nodiscard]] std::string UriOf(const std::string& name) const override { return "memory://" + name; }

  [[nodiscard]] std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, object] : objects_) names.push_back(name);
    return names;
  }

  WallTime now{std::chrono::seconds(1'767'225'600)};
  int deletions_left = 1000;
  std::set<std::string> uploads;
  std::optional<Error> uploads_error;
  int asked_to_abort = 0;

 private:
  std::map<std::string, std::pair<std::string, WallTime>> objects_;
};

}  // namespace lockstep::testing
