#pragma once
// The fields that every Kubernetes object has, read from its JSON. Pure.

#include <compare>
#include <string>
#include <string_view>

#include "runtime/common/base/json.h"

namespace lockstep::kube {

// A kind as the API server names it in paths.
struct Resource {
  std::string_view group;  // empty: the core group
  std::string_view version;
  std::string_view plural;
  std::string_view kind;

  friend bool operator==(const Resource&, const Resource&) = default;
};

inline constexpr Resource kPods{"", "v1", "pods", "Pod"};
inline constexpr Resource kNodes{"", "v1", "nodes", "Node"};
inline constexpr Resource kNamespaces{"", "v1", "namespaces", "Namespace"};
inline constexpr Resource kServices{"", "v1", "services", "Service"};
inline constexpr Resource kConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline constexpr Resource kSecrets{"", "v1", "secrets", "Secret"};
inline constexpr Resource kLeases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline constexpr Resource kEvents{"events.k8s.io", "v1", "events", "Event"};
inline constexpr Resource kSubjectAccessReviews{"authorization.k8s.io", "v1", "subjectaccessreviews",
                                                "SubjectAccessReview"};
inline constexpr Resource kTokenReviews{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview"};

struct ObjectKey {
  std::string name_space;  // empty for cluster-scoped objects
  std::string name;

  // "namespace/name", the form used in queues and logs.
  [[nodiscard]] std::string ToString() const { return name_space + "/" + name; }
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

[[nodiscard]] inline ObjectKey KeyFromString(std::string_view text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) return {"", std::string(text)};
  return {std::string(text.substr(0, slash)), std::string(text.substr(slash + 1))};
}

[[nodiscard]] inline ObjectKey KeyOf(const Json& object) {
  return {StringAt(object, {"metadata", "namespace"}), StringAt(object, {"metadata", "name"})};
}

[[nodiscard]] inline std::string UidOf(const Json& object) { return StringAt(object, {"metadata", "uid"}); }

// The ownerReference with controller=true, as the object states it; null if there is none.
[[nodiscard]] inline const Json* ControllerOf(const Json& object) {
  const Json* owners = FindJson(object, {"metadata", "ownerReferences"});
  if (owners == nullptr || !owners->is_array()) return nullptr;
  for (const Json& owner : *owners) {
    if (BoolAt(owner, {"controller"})) return &owner;
  }
  return nullptr;
}

}  // namespace lockstep::kube
