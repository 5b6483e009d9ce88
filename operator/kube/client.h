#pragma once
// Reading from and writing to the API server: the interfaces that everything above uses, so that tests put a
// fake behind them. Implementations are safe to call from any thread; each call blocks until the answer or
// its deadline. Every write here may be sent twice (a connection can die after the server acted), so callers
// use deterministic names and preconditions.

#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "operator/kube/object.h"
#include "operator/kube/request.h"
#include "operator/kube/watch_decoder.h"
#include "runtime/common/base/result.h"

namespace lockstep::kube {

struct ListPage {
  std::vector<Json> items;
  std::string continue_token;  // empty: the last page
  std::string resource_version;
};

class KubeReader {
 public:
  virtual ~KubeReader() = default;
  [[nodiscard]] virtual Result<Json> Get(const Resource& resource, const ObjectKey& key) = 0;
  [[nodiscard]] virtual Result<ListPage> List(const Resource& resource, const ListOptions& options,
                                              std::stop_token stop) = 0;
  // Calls `on_event` for each event as it arrives, on the calling thread; false ends the watch. Returns once
  // the stream has ended in good order.
  [[nodiscard]] virtual Result<void> Watch(const Resource& resource, const WatchOptions& options,
                                           const std::function<bool(WatchEvent)>& on_event,
                                           std::stop_token stop) = 0;
};

class KubeWriter {
 public:
  virtual ~KubeWriter() = default;
  // Each returns the object as stored.
  [[nodiscard]] virtual Result<Json> Create(const Resource& resource, const Json& object) = 0;
  // Fails with kConflict where the object's resourceVersion is not the newest.
  [[nodiscard]] virtual Result<Json> Replace(const Resource& resource, const Json& object) = 0;
  [[nodiscard]] virtual Result<Json> Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                                           const PatchOptions& options) = 0;
  // The object with its deletionTimestamp, or a Status where it is gone already.
  [[nodiscard]] virtual Result<Json> Delete(const Resource& resource, const ObjectKey& key,
                                            const DeleteOptions& options) = 0;
};

class KubeClient : public KubeReader, public KubeWriter {};

}  // namespace lockstep::kube
