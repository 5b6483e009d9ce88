#pragma once
// KubeClient over HTTP. Any thread; the transport must outlive it.
//
// Where the API server says Retry-After, the client waits so long, for ten seconds in all; then it returns the
// refusal.

#include <functional>

#include "operator/kube/client.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/pause.h"
#include "runtime/common/base/token_bucket.h"
#include "runtime/common/http/transport.h"

namespace lockstep::kube {

// Told after each exchange: the method and the status, 0 where no answer came. For
// rest_client_requests_total.
using RequestObserver = std::function<void(const std::string& method, int status)>;

// Waits; false where it was stopped meanwhile.
using Pause = std::function<bool(Milliseconds time, const std::stop_token& stop)>;

struct RestClientOptions {
  RequestObserver observer;
  double requests_per_second = 0;  // of all but watches, on average; 0: no limit
  double burst = 1;                // so many at once
  std::stop_token stop;            // ends every call with kCancelled
  // How long a call may take from now on, its repeats and its waits for Retry-After included. It is asked
  // before each of them. None: fifteen seconds for each exchange.
  std::function<Milliseconds()> time_left;
  Pause pause = PauseFor;
  Milliseconds timeout{15'000};  // of an exchange, except lists and watches
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
  // Observed; sent once more where no answer came.
  Result<http::Response> Send(http::Request request, const std::stop_token& stop);
  // Within the time that is left.
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
