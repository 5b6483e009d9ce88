#pragma once
// KubeClient over HTTP. Any thread; the transport must outlive it.

#include <functional>

#include "operator/kube/client.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// Told after each exchange: the method and the status, 0 where no answer came. For
// rest_client_requests_total.
using RequestObserver = std::function<void(const std::string& method, int status)>;

class RestClient final : public KubeClient {
 public:
  explicit RestClient(http::HttpTransport& transport, RequestObserver observer = {});

  Result<Json> Get(const Resource& resource, const ObjectKey& key) override;
  Result<ListPage> List(const Resource& resource, const ListOptions& options, std::stop_token stop) override;
  Result<void> Watch(const Resource& resource, const WatchOptions& options,
                     const std::function<bool(WatchEvent)>& on_event, std::stop_token stop) override;
  Result<Json> Create(const Resource& resource, const Json& object) override;
  Result<Json> Replace(const Resource& resource, const Json& object) override;
  Result<Json> Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                     const PatchOptions& options) override;
  Result<Json> Delete(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) override;

 private:
  Result<Json> Exchange(http::Request request, std::stop_token stop = {});
  void Observe(const std::string& method, int status) const;

  http::HttpTransport& transport_;
  RequestObserver observer_;
};

}  // namespace lockstep::kube
