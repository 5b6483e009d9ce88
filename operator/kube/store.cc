#include "operator/kube/store.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace lockstep::kube {
namespace {

// Versions of one API server are numbers that increase with every write, across all kinds.
uint64_t VersionFromText(std::string_view text) {
  uint64_t version = 0;
  std::from_chars(text.data(), text.data() + text.size(), version);
  return version;
}

uint64_t VersionOf(const Json& object) {
  return VersionFromText(StringAt(object, {"metadata", "resourceVersion"}));
}

}  // namespace

Store::Store(Slim slim, std::vector<Index> indexes) : slim_(std::move(slim)), indexes_(std::move(indexes)) {}

Object Store::Get(const ObjectKey& key) const {
  const MutexLock lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second;
}

std::vector<Object> Store::ByIndex(const std::string& value) const {
  const MutexLock lock(mutex_);
  std::vector<Object> objects;
  const auto found = by_index_.find(value);
  if (found == by_index_.end()) return objects;
  for (const ObjectKey& key : found->second) objects.push_back(entries_.at(key));
  return objects;
}

std::vector<Object> Store::All() const {
  const MutexLock lock(mutex_);
  std::vector<Object> objects;
  objects.reserve(entries_.size());
  for (const auto& [key, object] : entries_) objects.push_back(object);
  return objects;
}

std::size_t Store::size() const {
  const MutexLock lock(mutex_);
  return entries_.size();
}

std::vector<ObjectChange> Store::ReplaceAll(std::vector<Json> objects, const std::string& resource_version,
                                            const std::string& name_space) {
  std::vector<ObjectChange> changes;
  std::set<ObjectKey> listed;
  const uint64_t version = VersionFromText(resource_version);
  const MutexLock lock(mutex_);
  for (Json& object : objects) {
    const ObjectKey key = KeyOf(object);
    listed.insert(key);
    const auto known = entries_.find(key);
    // The entry is newer if it comes from a write of our own; handlers are then called with it, because the
    // list replaces the event. An object of the same version may still differ if the definition of its kind
    // has changed.
    if (known != entries_.end() && VersionOf(*known->second) > VersionOf(object)) {
      changes.push_back({known->second, known->second});
    } else {
      changes.push_back(Set(std::move(object)));
    }
  }
  std::vector<ObjectKey> gone;
  for (const auto& [key, object] : entries_) {
    if (!name_space.empty() && key.name_space != name_space) continue;
    // Entries newer than the list come from our own writes and are kept: the watch reports their state.
    if (!listed.contains(key) && VersionOf(*object) <= version) gone.push_back(key);
  }
  for (const ObjectKey& key : gone) changes.push_back({Erase(key), nullptr});
  uint64_t& seen = seen_[name_space];
  seen = std::max(seen, version);
  return changes;
}

std::vector<ObjectChange> Store::Put(Json object) {
  const MutexLock lock(mutex_);
  const uint64_t version = VersionOf(object);
  const ObjectKey key = KeyOf(object);
  uint64_t& seen = NewestVersionIn(key.name_space);
  seen = std::max(seen, version);
  const auto known = entries_.find(key);
  // The entry is already this version or newer because of a write of our own. Handlers must still be called.
  if (known != entries_.end() && VersionOf(*known->second) >= version)
    return {{known->second, known->second}};
  return {Set(std::move(object))};
}

std::vector<ObjectChange> Store::Remove(Json object) {
  const MutexLock lock(mutex_);
  const uint64_t version = VersionOf(object);
  const ObjectKey key = KeyOf(object);
  uint64_t& seen = NewestVersionIn(key.name_space);
  seen = std::max(seen, version);
  const auto known = entries_.find(key);
  // Another object of this name exists, known from a write of our own.
  if (known != entries_.end() && VersionOf(*known->second) > version)
    return {{std::make_shared<const Json>(Slimmed(std::move(object))), nullptr}};
  Object before =
      known == entries_.end() ? std::make_shared<const Json>(Slimmed(std::move(object))) : Erase(key);
  return {{std::move(before), nullptr}};
}

void Store::AdvanceTo(const std::string& resource_version, const std::string& name_space) {
  const MutexLock lock(mutex_);
  uint64_t& seen = NewestVersionIn(name_space);
  seen = std::max(seen, VersionFromText(resource_version));
}

void Store::Learn(Json object) {
  const MutexLock lock(mutex_);
  const uint64_t version = VersionOf(object);
  const ObjectKey key = KeyOf(object);
  if (version <= NewestVersionIn(key.name_space)) return;
  const auto known = entries_.find(key);
  if (known != entries_.end() && VersionOf(*known->second) >= version) return;
  Set(std::move(object));
}

uint64_t& Store::NewestVersionIn(const std::string& name_space) {
  const auto own = seen_.find(name_space);
  return own == seen_.end() ? seen_[""] : own->second;
}

ObjectChange Store::Set(Json object) {
  const ObjectKey key = KeyOf(object);
  auto after = std::make_shared<const Json>(Slimmed(std::move(object)));
  Object& entry = entries_[key];
  Reindex(key, entry.get(), after.get());
  Object before = std::exchange(entry, after);
  return {std::move(before), std::move(after)};
}

Object Store::Erase(const ObjectKey& key) {
  const auto found = entries_.find(key);
  Object before = found->second;
  Reindex(key, before.get(), nullptr);
  entries_.erase(found);
  return before;
}

void Store::Reindex(const ObjectKey& key, const Json* before, const Json* after) {
  for (const Index& index : indexes_) {
    const std::string old_value = before == nullptr ? "" : index(*before);
    const std::string new_value = after == nullptr ? "" : index(*after);
    if (old_value == new_value) continue;
    if (!old_value.empty()) {
      const auto group = by_index_.find(old_value);
      group->second.erase(key);
      if (group->second.empty()) by_index_.erase(group);
    }
    if (!new_value.empty()) by_index_[new_value].insert(key);
  }
}

}  // namespace lockstep::kube
