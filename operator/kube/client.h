#pragma once
// Interfaces for reading from and writing to the API server; tests put a fake behind them. Implementations
// are safe to call from any thread. Each call blocks until the answer or its deadline. A write may be sent
// twice, because a connection can fail after the server acted: callers use deterministic names and
// preconditions.

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
  std::string continue_token;  // empty: this is the last page
  std::string resource_version;
};

class KubeReader {
 public:
  virtual ~KubeReader() = default;
  [[nodiscard]] virtual Result<Json> Get(const Resource& resource, const ObjectKey& key) = 0;
  [[nodiscard]] virtual Result<ListPage> List(const Resource& resource, const ListOptions& options,
                                              std::stop_token stop) = 0;
  // Calls `on_event` for each event as it arrives, on the calling thread; if it returns false, the watch
  // ends. Returns without an error once the server has closed the stream in good order.
  [[nodiscard]] virtual Result<void> Watch(const Resource& resource, const WatchOptions& options,
                                           const std::function<bool(WatchEvent)>& on_event,
                                           std::stop_token stop) = 0;
};

class KubeWriter {
 public:
  virtual ~KubeWriter() = default;
  // Each write returns the object as stored.
  [[nodiscard]] virtual Result<Json> Create(const Resource& resource, const Json& object) = 0;
  // kConflict: the object's resourceVersion is not the newest.
  [[nodiscard]] virtual Result<Json> Replace(const Resource& resource, const Json& object) = 0;
  [[nodiscard]] virtual Result<Json> Patch(const Resource& resource, const ObjectKey& key, const Json& patch,
                                           const PatchOptions& options) = 0;
  // Returns the object with its deletionTimestamp, or a Status if the object is already gone.
  [[nodiscard]] virtual Result<Json> Delete(const Resource& resource, const ObjectKey& key,
                                            const DeleteOptions& options) = 0;
};

class KubeClient : public KubeReader, public KubeWriter {};

}  // namespace lockstep::kube
