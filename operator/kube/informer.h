#pragma once
// Keeps one Store level with the API server: a thread that drives WatchState. Handlers run on that thread,
// with no lock held, after the store has changed; they must not block. Failures are retried for ever with
// back-off; the destructor stops and joins.

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
  // A change of our definition ends the watches of the kind. Their last events were read by the old definition,
  // without the new fields, and have the same resource version. So the kind is listed again.
  bool definition_may_change = false;
};

class Informer {
 public:
  using Handler = std::function<void(const ObjectChange& change)>;

  Informer(KubeReader& reader, InformerOptions options, Store& store, Handler handler);

  void Start();
  // True once the first list is in the store and every handler has heard of it.
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
  std::jthread thread_;  // last: joins before the rest goes
};

}  // namespace lockstep::kube
