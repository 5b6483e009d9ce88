#include "tests/support/fake_kube.h"

#include <utility>

namespace lockstep::testing {
namespace {

using kube::ObjectKey;
using kube::Resource;
using kube::WatchEventType;

Error NotFound(const ObjectKey& key) { return {ErrorCode::kNotFound, key.ToString() + " not found"}; }

// RFC 7396; null removes.
void MergeInto(Json& target, const Json& patch) { target.merge_patch(patch); }

}  // namespace

std::optional<Error> FakeKube::Fault(const std::string& verb, const Resource& resource,
                                     const ObjectKey& key) {
  if (fault) {
    if (auto error = fault(verb, std::string(resource.plural), key)) return error;
  }
  const std::lock_guard lock(mutex_);
  writes_.push_back(verb + " " + std::string(resource.plural) + "/" + key.name);
  return std::nullopt;
}

Result<Json> FakeKube::Answer(const std::string& verb, const Resource& resource, Json object) {
  if (lose_answer && lose_answer(verb, std::string(resource.plural), kube::KeyOf(object))) {
    return Error{ErrorCode::kUnavailable, "the answer was lost"};
  }
  return object;
}

Json FakeKube::Store(const Resource& resource, Json object, WatchEventType type) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  Objects& objects = objects_[std::string(resource.plural)];
  if (type == WatchEventType::kDeleted) {
    objects.erase(kube::KeyOf(object));
  } else {
    objects[kube::KeyOf(object)] = object;
  }
  log_.push_back({version_, std::string(resource.plural), {type, object}});
  changed_.notify_all();
  return object;
}

Result<Json> FakeKube::Get(const Resource& resource, const ObjectKey& key) {
  if (why_unreadable) {
    if (const auto error = why_unreadable(key)) return *error;
  }
  const std::lock_guard lock(mutex_);
  const Objects& objects = objects_[std::string(resource.plural)];
  const auto found = objects.find(key);
  if (found == objects.end()) return NotFound(key);
  return found->second;
}

// A page goes on after the key that its token names.
Result<kube::ListPage> FakeKube::List(const Resource& resource, const kube::ListOptions& options,
                                      std::stop_token) {
  const std::lock_guard lock(mutex_);
  kube::ListPage page{.resource_version = std::to_string(version_)};
  const Objects& objects = objects_[std::string(resource.plural)];
  const bool is_first = options.continue_token.empty();
  auto next = is_first ? objects.begin() : objects.upper_bound(kube::KeyFromString(options.continue_token));
  for (; next != objects.end(); ++next) {
    if (page.items.size() == static_cast<std::size_t>(options.limit)) {
      page.continue_token = kube::KeyOf(page.items.back()).ToString();
      break;
    }
    page.items.push_back(next->second);
  }
  return page;
}

Result<void> FakeKube::Watch(const Resource& resource, const kube::WatchOptions& options,
                             const std::function<bool(kube::WatchEvent)>& on_event, std::stop_token stop) {
  int64_t seen = std::stoll(options.resource_version);
  std::unique_lock lock(mutex_);
  if (seen < compacted_) return Error{ErrorCode::kGone, "too old"};
  const int64_t compacted = compacted_;
  while (true) {
    std::vector<kube::WatchEvent> events;
    for (const Logged& entry : log_) {
      if (entry.version > seen && entry.plural == resource.plural) events.push_back(entry.event);
    }
    seen = version_;
    lock.unlock();
    for (kube::WatchEvent& event : events) {
      if (!on_event(std::move(event))) return {};
    }
    lock.lock();
    const bool more = changed_.wait(lock, stop, [&] { return version_ > seen || compacted_ != compacted; });
    if (!more) return Error{ErrorCode::kCancelled, "stopped"};
    if (compacted_ != compacted) return Error{ErrorCode::kUnavailable, "cut"};
  }
}

Result<Json> FakeKube::Create(const Resource& resource, const Json& object) {
  const ObjectKey key = kube::KeyOf(object);
  if (auto error = Fault("POST", resource, key)) return *error;
  const std::lock_guard lock(mutex_);
  if (objects_[std::string(resource.plural)].contains(key)) {
    return Error{ErrorCode::kAlreadyExists, key.ToString() + " already exists"};
  }
  Json created = object;
  created["metadata"]["uid"] = "uid-" + std::to_string(next_uid_++);
  return Answer("POST", resource, Store(resource, std::move(created), WatchEventType::kAdded));
}

Result<Json> FakeKube::Replace(const Resource& resource, const Json& object) {
  const ObjectKey key = kube::KeyOf(object);
  if (auto error = Fault("PUT", resource, key)) return *error;
  const std::lock_guard lock(mutex_);
  const Objects& objects = objects_[std::string(resource.plural)];
  const auto found = objects.find(key);
  if (found == objects.end()) return NotFound(key);
  if (found->second["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"]) {
    return Error{ErrorCode::kConflict, "changed meanwhile"};
  }
  return Answer("PUT", resource, Store(resource, object, WatchEventType::kModified));
}

Result<Json> FakeKube::Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                             const kube::PatchOptions& options) {
  if (auto error = Fault(options.kind == kube::PatchKind::kApply ? "APPLY" : "PATCH", resource, key))
    return *error;
  const std::lock_guard lock(mutex_);
  const Objects& objects = objects_[std::string(resource.plural)];
  const auto found = objects.find(key);
  const bool is_new = found == objects.end();
  if (is_new && options.kind == kube::PatchKind::kMerge) return NotFound(key);
  Json object = is_new ? patch : found->second;
  const std::string wanted = StringAt(patch, {"metadata", "resourceVersion"});
  if (!is_new && !wanted.empty() && wanted != StringAt(object, {"metadata", "resourceVersion"})) {
    return Error{ErrorCode::kConflict, "changed meanwhile"};
  }
  MergeInto(object, patch);
  if (is_new) object["metadata"]["uid"] = "uid-" + std::to_string(next_uid_++);
  const bool is_finalized = object["metadata"].contains("deletionTimestamp") &&
                            object["metadata"].value("finalizers", Json::array()).empty();
  const WatchEventType type = is_finalized ? WatchEventType::kDeleted
                              : is_new     ? WatchEventType::kAdded
                                           : WatchEventType::kModified;
  return Answer("PATCH", resource, Store(resource, object, type));
}

Result<Json> FakeKube::Delete(const Resource& resource, const ObjectKey& key,
                              const kube::DeleteOptions& options) {
  if (auto error = Fault("DELETE", resource, key)) return *error;
  const std::lock_guard lock(mutex_);
  const Objects& objects = objects_[std::string(resource.plural)];
  const auto found = objects.find(key);
  if (found == objects.end()) return NotFound(key);
  if (!options.uid.empty() && kube::UidOf(found->second) != options.uid) {
    return Error{ErrorCode::kConflict, "another incarnation"};
  }
  if (!options.resource_version.empty() &&
      options.resource_version != StringAt(found->second, {"metadata", "resourceVersion"})) {
    return Error{ErrorCode::kConflict, "changed meanwhile"};
  }
  Json object = found->second;
  // A started pod gets its grace period, and is gone when the kubelet deletes it with none.
  const bool is_graceful = resource.plural == kube::kPods.plural && options.grace_seconds != 0 &&
                           StringAt(object, {"status", "phase"}) == "Running";
  const bool is_held = !object["metadata"].value("finalizers", Json::array()).empty();
  if (is_graceful || is_held) object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  const WatchEventType type = is_graceful || is_held ? WatchEventType::kModified : WatchEventType::kDeleted;
  return Answer("DELETE", resource, Store(resource, object, type));
}

void FakeKube::Compact() {
  const std::lock_guard lock(mutex_);
  compacted_ = ++version_;
  log_.clear();
  changed_.notify_all();
}

std::vector<std::string> FakeKube::writes() const {
  const std::lock_guard lock(mutex_);
  return writes_;
}

std::vector<Json> FakeKube::all(const Resource& resource) const {
  const std::lock_guard lock(mutex_);
  std::vector<Json> found;
  const auto objects = objects_.find(std::string(resource.plural));
  if (objects == objects_.end()) return found;
  for (const auto& [key, object] : objects->second) found.push_back(object);
  return found;
}

}  // namespace lockstep::testing
