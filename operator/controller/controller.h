#pragma once
// One queue, N workers, one reconciler. Built and owned by main; Start once; the destructor stops the workers
// and waits for the reconciles under way.

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
  // Something about this object may have changed. Any thread, also before Start.
  void Enqueue(const std::string& key);
  // The same where changes come by the hundred: a short wait, and one reconcile for all of them.
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
