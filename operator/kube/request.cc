#include "operator/kube/request.h"

#include <array>
#include <utility>
#include <vector>

namespace lockstep::kube {
namespace {

using Query = std::vector<std::pair<std::string_view, std::string>>;

std::string ApiVersionOf(const Resource& resource) {
  return resource.group.empty() ? std::string(resource.version)
                                : std::string(resource.group) + "/" + std::string(resource.version);
}

std::string Escape(std::string_view text) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  static constexpr std::string_view kPlain = "-._~";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || kPlain.find(c) != std::string_view::npos) {
      escaped += c;
    } else {
      escaped += {'%', kDigits[byte >> 4U], kDigits[byte & 0xFU]};
    }
  }
  return escaped;
}

std::string PathOf(const Resource& resource, const ObjectKey& key) {
  std::string path = (resource.group.empty() ? "/api/" : "/apis/") + ApiVersionOf(resource);
  if (!key.name_space.empty()) path += "/namespaces/" + Escape(key.name_space);
  path += "/" + std::string(resource.plural);
  if (!key.name.empty()) path += "/" + Escape(key.name);
  return path;
}

std::string WithQuery(std::string path, const Query& query) {
  char separator = '?';
  for (const auto& [name, value] : query) {
    if (value.empty()) continue;
    path += std::exchange(separator, '&') + std::string(name) + "=" + Escape(value);
  }
  return path;
}

http::Request WithBody(std::string method, std::string target, const Json& body, std::string type) {
  return {.method = std::move(method),
          .target = std::move(target),
          .headers = {{"Content-Type", std::move(type)}, {"Accept", "application/json"}},
          .body = DumpJson(body)};
}

http::Request WithoutBody(std::string target) {
  return {.method = "GET", .target = std::move(target), .headers = {{"Accept", "application/json"}}};
}

Json Typed(const Resource& resource, Json object) {
  object["apiVersion"] = ApiVersionOf(resource);
  object["kind"] = resource.kind;
  return object;
}

}  // namespace

http::Request GetRequest(const Resource& resource, const ObjectKey& key) {
  return WithoutBody(PathOf(resource, key));
}

http::Request ListRequest(const Resource& resource, const ListOptions& options) {
  return WithoutBody(
      WithQuery(PathOf(resource, {options.name_space, ""}), {{"labelSelector", options.label_selector},
                                                             {"limit", std::to_string(options.limit)},
                                                             {"continue", options.continue_token}}));
}

http::Request WatchRequest(const Resource& resource, const WatchOptions& options) {
  http::Request request =
      WithoutBody(WithQuery(PathOf(resource, {options.name_space, ""}),
                            {{"watch", "true"},
                             {"allowWatchBookmarks", "true"},
                             {"labelSelector", options.label_selector},
                             {"resourceVersion", options.resource_version},
                             {"timeoutSeconds", std::to_string(options.timeout.count())}}));
  // No data beyond the server's own time-out means that the connection has failed.
  request.timeout = options.timeout + std::chrono::seconds(10);
  return request;
}

http::Request CreateRequest(const Resource& resource, const Json& object) {
  return WithBody("POST", PathOf(resource, {KeyOf(object).name_space, ""}), Typed(resource, object),
                  "application/json");
}

http::Request ReplaceRequest(const Resource& resource, const Json& object) {
  return WithBody("PUT", PathOf(resource, KeyOf(object)), Typed(resource, object), "application/json");
}

http::Request PatchRequest(const Resource& resource, const ObjectKey& key, const Json& patch,
                           const PatchOptions& options) {
  const bool is_apply = options.kind == PatchKind::kApply;
  std::string path = PathOf(resource, key);
  if (!options.subresource.empty()) path += "/" + options.subresource;
  return WithBody("PATCH",
                  WithQuery(std::move(path),
                            {{"fieldManager", options.field_manager}, {"force", is_apply ? "true" : ""}}),
                  is_apply ? Typed(resource, patch) : patch,
                  is_apply ? "application/apply-patch+yaml" : "application/merge-patch+json");
}

http::Request DeleteRequest(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) {
  Json body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", options.propagation}};
  if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
  if (!options.resource_version.empty()) {
    body["preconditions"]["resourceVersion"] = options.resource_version;
  }
  if (options.grace_seconds) body["gracePeriodSeconds"] = *options.grace_seconds;
  return WithBody("DELETE", PathOf(resource, key), body, "application/json");
}

}  // namespace lockstep::kube
