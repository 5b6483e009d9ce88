#pragma once
// Verb + resource + options → HTTP request. Pure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "operator/kube/object.h"
#include "runtime/common/base/json.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

struct ListOptions {
  std::string name_space;  // empty: all namespaces
  std::string label_selector;
  std::string continue_token;  // from the previous page
  int limit = 500;
};

struct WatchOptions {
  std::string name_space;
  std::string label_selector;
  std::string resource_version;
  std::chrono::seconds timeout{90};  // the server ends the stream in good order after this time
};

struct DeleteOptions {
  std::string uid;               // precondition: delete only the object with this uid
  std::string resource_version;  // precondition: delete only this version
  std::optional<int64_t> grace_seconds;
  std::string propagation = "Background";
};

enum class PatchKind { kMerge, kApply };

struct PatchOptions {
  PatchKind kind = PatchKind::kMerge;
  std::string subresource;    // "status"
  std::string field_manager;  // required for kApply, which takes fields over from other managers
};

[[nodiscard]] http::Request GetRequest(const Resource& resource, const ObjectKey& key);
[[nodiscard]] http::Request ListRequest(const Resource& resource, const ListOptions& options);
[[nodiscard]] http::Request WatchRequest(const Resource& resource, const WatchOptions& options);
// The key comes from the object's metadata; apiVersion and kind are added.
[[nodiscard]] http::Request CreateRequest(const Resource& resource, const Json& object);
[[nodiscard]] http::Request ReplaceRequest(const Resource& resource, const Json& object);
[[nodiscard]] http::Request PatchRequest(const Resource& resource, const ObjectKey& key, const Json& patch,
                                         const PatchOptions& options);
[[nodiscard]] http::Request DeleteRequest(const Resource& resource, const ObjectKey& key,
                                          const DeleteOptions& options);

}  // namespace lockstep::kube
