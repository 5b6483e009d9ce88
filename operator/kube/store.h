#pragma once
// The cache of one kind. Any thread reads. The informer's thread applies the events of the watch. Writers add
// the API server's answers, so that a reconcile sees its own writes. Objects are immutable and shared: a
// reader keeps its snapshot while the watch replaces the entry.

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

// `before` is null for a new object, `after` for a deleted one.
struct ObjectChange {
  Object before;
  Object after;
};

class Store {
 public:
  // Must be idempotent.
  using Slim = std::function<Json(Json)>;
  // Groups objects for ByIndex, for instance by the uid of their controller; "" leaves an object out. The
  // values of different indexes of a store must differ.
  using Index = std::function<std::string(const Json&)>;

  explicit Store(Slim slim = {}, std::vector<Index> indexes = {});

  [[nodiscard]] Object Get(const ObjectKey& key) const;
  [[nodiscard]] std::vector<Object> ByIndex(const std::string& value) const;
  [[nodiscard]] std::vector<Object> All() const;
  [[nodiscard]] std::size_t size() const;
  // What the cache would keep of this object.
  [[nodiscard]] Json Slimmed(Json object) const {
    return slim_ ? slim_(std::move(object)) : std::move(object);
  }

  // From the watch, in its order. If each namespace has a watch of its own, a list or a bookmark applies to
  // that namespace; "" applies to all.
  std::vector<ObjectChange> ReplaceAll(std::vector<Json> objects, const std::string& resource_version,
                                       const std::string& name_space = "");
  std::vector<ObjectChange> Put(Json object);
  std::vector<ObjectChange> Remove(Json object);
  void AdvanceTo(const std::string& resource_version, const std::string& name_space = "");

  // From the answer to a write of the operator. Ignored if the watch has already passed this version, because
  // it may have reported the object's deletion.
  void Learn(Json object);

 private:
  using Entries = std::map<ObjectKey, Object>;

  ObjectChange Set(Json object) LOCKSTEP_REQUIRES(mutex_);
  // The newest version that the watch of objects of this namespace has reported.
  uint64_t& NewestVersionIn(const std::string& name_space) LOCKSTEP_REQUIRES(mutex_);
  Object Erase(const ObjectKey& key) LOCKSTEP_REQUIRES(mutex_);
  void Reindex(const ObjectKey& key, const Json* before, const Json* after) LOCKSTEP_REQUIRES(mutex_);

  const Slim slim_;
  const std::vector<Index> indexes_;
  mutable Mutex mutex_;
  Entries entries_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::string, std::set<ObjectKey>> by_index_ LOCKSTEP_GUARDED_BY(mutex_);
  // newest version by namespace of the watch; "": all namespaces
  std::map<std::string, uint64_t> seen_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::kube
