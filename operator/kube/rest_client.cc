#include "operator/kube/rest_client.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "operator/kube/status_error.h"

namespace lockstep::kube {
namespace {

constexpr std::chrono::milliseconds kListTimeout{60'000};
constexpr std::chrono::seconds kRetryAfterLimit{10};
constexpr std::size_t kMaxEventBytes = 8U << 20U;  // larger than any object: etcd's limit is 1.5 MiB

// The value of Retry-After; nullopt if the answer has none.
std::optional<Milliseconds> RetryAfter(const http::Response& response) {
  const auto header = response.headers.find("retry-after");
  if (header == response.headers.end() || (response.status != 429 && response.status < 500)) return {};
  int seconds = 0;
  const char* end = header->second.data() + header->second.size();
  const auto read = std::from_chars(header->second.data(), end, seconds);
  if (read.ec != std::errc() || read.ptr != end || seconds < 0) return {};
  return std::chrono::seconds(std::max(seconds, 1));
}

}  // namespace

RestClient::RestClient(http::HttpTransport& transport, RestClientOptions options)
    : transport_(transport),
      options_(std::move(options)),
      turns_(options_.requests_per_second, options_.burst) {}

void RestClient::Observe(const std::string& method, int status) const {
  if (options_.observer) options_.observer(method, status);
}

bool RestClient::AwaitTurn(const std::stop_token& stop) {
  if (options_.requests_per_second <= 0) return !stop.stop_requested();
  Milliseconds wait{};
  {
    const MutexLock lock(mutex_);
    wait = turns_.Take(std::chrono::steady_clock::now());
  }
  return wait.count() == 0 ? !stop.stop_requested() : options_.pause(wait, stop);
}

Result<http::Response> RestClient::SendOnce(http::Request& request, const std::stop_token& stop) {
  if (options_.time_left) {
    request.timeout = std::min(request.timeout, options_.time_left());
    if (request.timeout <= Milliseconds::zero()) {
      return Error{ErrorCode::kDeadlineExceeded, "no time is left for " + request.method};
    }
  }
  auto response = transport_.Send(request, stop);
  Observe(request.method, response.ok() ? response->status : 0);
  return response;
}

// An idle pooled connection that the server has closed fails without an answer, so the request is repeated
// once.
Result<http::Response> RestClient::Send(http::Request request, const std::stop_token& stop) {
  auto response = SendOnce(request, stop);
  if (response.ok() || response.error().code != ErrorCode::kUnavailable) return response;
  return SendOnce(request, stop);
}

bool RestClient::MayWait(Milliseconds wait, Milliseconds waited) const {
  return waited + wait <= kRetryAfterLimit && (!options_.time_left || wait < options_.time_left());
}

Result<Json> RestClient::Exchange(http::Request request, const std::stop_token& stop) {
  if (request.timeout == http::Request{}.timeout) request.timeout = options_.timeout;
  const Error stopped{ErrorCode::kCancelled, "stopped"};
  if (!AwaitTurn(stop)) return stopped;
  Milliseconds waited{};
  while (true) {
    auto response = Send(request, stop);
    if (!response.ok()) return response.error();
    const auto wait = RetryAfter(*response);
    if (!wait || !MayWait(*wait, waited)) {
      return BodyOrError(*response).WithContext(request.method + " " +
                                                request.target.substr(0, request.target.find('?')));
    }
    waited += *wait;
    if (!options_.pause(*wait, stop)) return stopped;
  }
}

Result<Json> RestClient::Get(const Resource& resource, const ObjectKey& key) {
  return Exchange(GetRequest(resource, key), options_.stop);
}

Result<ListPage> RestClient::List(const Resource& resource, const ListOptions& options,
                                  std::stop_token stop) {
  http::Request request = ListRequest(resource, options);
  request.timeout = kListTimeout;
  LOCKSTEP_TRY(Json body, Exchange(std::move(request), stop));
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
  return Exchange(CreateRequest(resource, object), options_.stop);
}

Result<Json> RestClient::Replace(const Resource& resource, const Json& object) {
  return Exchange(ReplaceRequest(resource, object), options_.stop);
}

Result<Json> RestClient::Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                               const PatchOptions& options) {
  return Exchange(PatchRequest(resource, key, patch, options), options_.stop);
}

Result<Json> RestClient::Delete(const Resource& resource, const ObjectKey& key,
                                const DeleteOptions& options) {
  return Exchange(DeleteRequest(resource, key, options), options_.stop);
}

}  // namespace lockstep::kube
