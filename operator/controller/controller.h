#pragma once
// One queue, N worker threads, one reconciler. Owned by main, which calls Start once. The destructor stops
// the workers and waits for reconciles in progress.

#include <string>
#include <thread>
#include <vector>

#include "operator/controller/observer.h"
#include "operator/controller/reconciler.h"
#include "operator/controller/workqueue.h"

namespace lockstep::controller {

class Controller {
 public:
  Controller(const Clock& clock, Reconciler& reconciler, ControllerObserver& observer)
      : clock_(clock), reconciler_(reconciler), observer_(observer), queue_(clock) {}
  ~Controller();

  void Start(int workers);
  // Call when something about this object may have changed. Any thread, also before Start.
  void Enqueue(const std::string& key);
  // Like Enqueue, but waits briefly first, so that a burst of changes causes one reconcile.
  void EnqueueSoon(const std::string& key);
  [[nodiscard]] std::size_t depth() const { return queue_.depth(); }

 private:
  void Work(const std::stop_token& stop);
  void ReconcileOnce(const WorkQueue::Item& item);

  const Clock& clock_;
  Reconciler& reconciler_;
  ControllerObserver& observer_;
  WorkQueue queue_;
  std::vector<std::jthread> workers_;
};

}  // namespace lockstep::controller
