#include "operator/kube/rest_client.h"

#include <optional>
#include <utility>

#include "operator/kube/status_error.h"

namespace lockstep::kube {
namespace {

constexpr std::chrono::milliseconds kExchangeTimeout{15'000};
constexpr std::chrono::milliseconds kListTimeout{60'000};
constexpr std::size_t kMaxEventBytes = 8U << 20U;  // etcd refuses objects above 1.5 MiB

}  // namespace

RestClient::RestClient(http::HttpTransport& transport, RequestObserver observer)
    : transport_(transport), observer_(std::move(observer)) {}

void RestClient::Observe(const std::string& method, int status) const {
  if (observer_) observer_(method, status);
}

// Sent once more where no answer came: a pooled connection that the server closed while idle fails like this.
Result<Json> RestClient::Exchange(http::Request request, std::stop_token stop) {
  if (request.timeout == http::Request{}.timeout) request.timeout = kExchangeTimeout;
  auto response = transport_.Send(request, stop);
  if (!response.ok() && response.error().code == ErrorCode::kUnavailable) {
    Observe(request.method, 0);
    response = transport_.Send(request, stop);
  }
  Observe(request.method, response.ok() ? response->status : 0);
  if (!response.ok()) return response.error();
  return BodyOrError(*response).WithContext(request.method + " " +
                                            request.target.substr(0, request.target.find('?')));
}

Result<Json> RestClient::Get(const Resource& resource, const ObjectKey& key) {
  return Exchange(GetRequest(resource, key));
}

Result<ListPage> RestClient::List(const Resource& resource, const ListOptions& options,
                                  std::stop_token stop) {
  http::Request request = ListRequest(resource, options);
  request.timeout = kListTimeout;
  LOCKSTEP_TRY(Json body, Exchange(std::move(request), std::move(stop)));
  ListPage page{.continue_token = StringAt(body, {"metadata", "continue"}),
                .resource_version = StringAt(body, {"metadata", "resourceVersion"})};
  const auto items = body.find("items");
  if (items == body.end() || !items->is_array()) return page;
  page.items.reserve(items->size());
  for (Json& item : *items) page.items.push_back(std::move(item));
  return page;
}

Result<void> RestClient::Watch(const Resource& resource, const WatchOptions& options,
                               const std::function<bool(WatchEvent)>& on_event, std::stop_token stop) {
  WatchDecoder decoder(kMaxEventBytes);
  std::optional<Error> decode_error;
  const auto on_chunk = [&](std::string_view chunk) {
    const auto decoded = decoder.Feed(chunk, on_event);
    if (!decoded.ok()) decode_error = decoded.error();
    return decoded.ok() && *decoded;
  };
  const auto response = transport_.Stream(WatchRequest(resource, options), on_chunk, std::move(stop));
  Observe("WATCH", response.ok() ? response->status : 0);
  if (decode_error) return *decode_error;
  if (!response.ok()) return response.error();
  if (response->status < 300) return {};
  return BodyOrError(*response).error().WithContext("watching " + std::string(resource.plural));
}

Result<Json> RestClient::Create(const Resource& resource, const Json& object) {
  return Exchange(CreateRequest(resource, object));
}

Result<Json> RestClient::Replace(const Resource& resource, const Json& object) {
  return Exchange(ReplaceRequest(resource, object));
}

Result<Json> RestClient::Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                               const PatchOptions& options) {
  return Exchange(PatchRequest(resource, key, patch, options));
}

Result<Json> RestClient::Delete(const Resource& resource, const ObjectKey& key,
                                const DeleteOptions& options) {
  return Exchange(DeleteRequest(resource, key, options));
}

}  // namespace lockstep::kube
