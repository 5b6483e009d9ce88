#pragma once
// KubeClient over HTTP. Any thread; the transport must outlive it.
//
// If the API server answers with Retry-After, the client waits that long and repeats the request, for ten
// seconds in total. After that it returns the rejection.

#include <functional>

#include "operator/kube/backoff.h"
#include "operator/kube/client.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/token_bucket.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// Called after each exchange with the method and the status; the status is 0 without an answer. For
// rest_client_requests_total.
using RequestObserver = std::function<void(const std::string& method, int status)>;

struct RestClientOptions {
  RequestObserver observer;
  double requests_per_second = 0;  // average over all requests except watches; 0: no limit
  double burst = 1;                // requests that may be sent at once
  std::stop_token stop;            // a stop request ends every call with kCancelled
  // How long a call may take from now on, including its repeats and its waits for Retry-After. Called before
  // each of them. Not set: fifteen seconds for each exchange.
  std::function<Milliseconds()> time_left;
  Pause pause = PauseFor;
  Milliseconds timeout{15'000};  // of one exchange, except lists and watches
};

class RestClient final : public KubeClient {
 public:
  explicit RestClient(http::HttpTransport& transport, RestClientOptions options = {});

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
  Result<Json> Exchange(http::Request request, const std::stop_token& stop);
  // Calls the observer. Repeats the request once if there was no answer.
  Result<http::Response> Send(http::Request request, const std::stop_token& stop);
  // Limited to the time that is left.
  Result<http::Response> SendOnce(http::Request& request, const std::stop_token& stop);
  [[nodiscard]] bool MayWait(Milliseconds wait, Milliseconds waited) const;
  [[nodiscard]] bool AwaitTurn(const std::stop_token& stop);
  void Observe(const std::string& method, int status) const;

  http::HttpTransport& transport_;
  const RestClientOptions options_;
  Mutex mutex_;
  TokenBucket turns_ LOCKSTEP_GUARDED_BY(mutex_);
};

}  // namespace lockstep::kube
