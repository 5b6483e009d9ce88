#pragma once
// The cache of one kind. Any thread reads; the informer's thread applies what the watch says; writers add
// what the API server answered them, so that a reconcile sees its own writes. Objects are immutable and
// shared: a reader keeps its snapshot while the watch replaces the entry.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/mutex.h"

namespace lockstep::kube {

using Object = std::shared_ptr<const Json>;

// What a change was: before is absent for a new object, after for a deleted one.
struct ObjectChange {
  Object before;
  Object after;
};

class Store {
 public:
  // Applied once more, it must change nothing.
  using Slim = std::function<Json(Json)>;
  // Groups objects for ByIndex, for instance by the uid of their controller; "" leaves one out. The values of
  // a store's indexes must differ from each other.
  using Index = std::function<std::string(const Json&)>;

  explicit Store(Slim slim = {}, std::vector<Index> indexes = {});

  [[nodiscard]] Object Get(const ObjectKey& key) const;
  [[nodiscard]] std::vector<Object> ByIndex(const std::string& value) const;
  [[nodiscard]] std::vector<Object> All() const;
  [[nodiscard]] std::size_t size() const;
  // What the cache would keep of it.
  [[nodiscard]] Json Slimmed(Json object) const {
    return slim_ ? slim_(std::move(object)) : std::move(object);
  }

  // From the watch, in its order. If each namespace has a watch of its own, a list or a bookmark is about that
  // namespace; "": about all.
  std::vector<ObjectChange> ReplaceAll(std::vector<Json> objects, const std::string& resource_version,
                                       const std::string& name_space = "");
  std::vector<ObjectChange> Put(Json object);
  std::vector<ObjectChange> Remove(Json object);
  void Seen(const std::string& resource_version, const std::string& name_space = "");

  // From the answer to a write of our own. Ignored where the watch is already past it: it has told us of this
  // object, perhaps of its end.
  void Learn(Json object);

 private:
  using Entries = std::map<ObjectKey, Object>;

  ObjectChange Set(Json object) LOCKSTEP_REQUIRES(mutex_);
  // The newest version that the watch of objects of this namespace has reported.
  uint64_t& SeenIn(const std::string& name_space) LOCKSTEP_REQUIRES(mutex_);
  Object Erase(const ObjectKey& key) LOCKSTEP_REQUIRES(mutex_);
  void Reindex(const ObjectKey& key, const Json* before, const Json* after) LOCKSTEP_REQUIRES(mutex_);

  const Slim slim_;
  const std::vector<Index> indexes_;
  mutable Mutex mutex_;
  Entries entries_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::set<ObjectKey>> by_index_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> seen_ LOCKSTEP_GUARDED_BY(mutex_);  // of each watch; "": of all namespaces
};

}  // namespace lockstep::kube
