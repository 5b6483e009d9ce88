#pragma once
// Keeps one Store in sync with the API server, with a thread that drives WatchState. Handlers run on that
// thread after the store has changed, with no lock held; they must not block. Failures are retried without
// limit, with back-off. The destructor stops and joins.

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "operator/kube/backoff.h"
#include "operator/kube/client.h"
#include "operator/kube/store.h"
#include "operator/kube/watch_state.h"

namespace lockstep::kube {

struct InformerOptions {
  Resource resource;
  std::string name_space;  // empty: all
  std::string label_selector;
  BackoffPolicy backoff;
  // When the definition (CRD) of a kind changes, its watches end. Their last events were decoded with the old
  // definition, without its new fields, but with the same resource version. Therefore the kind is listed
  // again.
  bool definition_may_change = false;
};

class Informer {
 public:
  using Handler = std::function<void(const ObjectChange& change)>;

  Informer(KubeReader& reader, InformerOptions options, Store& store, Handler handler);

  void Start();
  // True once the first list is in the store and every handler has processed it.
  [[nodiscard]] bool synced() const { return synced_; }

 private:
  void Run(const std::stop_token& stop);
  [[nodiscard]] Result<void> Step(const std::stop_token& stop);
  [[nodiscard]] Result<void> ListStep(const ListNext& next, const std::stop_token& stop);
  [[nodiscard]] Result<void> WatchStep(const WatchNext& next, const std::stop_token& stop);
  void Apply(StoreChange change);

  KubeReader& reader_;
  const InformerOptions options_;
  Store& store_;
  const Handler handler_;
  WatchState state_;  // owned by thread_
  std::atomic<bool> synced_ = false;
  std::jthread thread_;  // last: joins before the other members are destroyed
};

}  // namespace lockstep::kube
