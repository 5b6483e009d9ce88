#include "operator/controller/controller.h"

#include "runtime/common/base/guard.h"
#include "runtime/common/base/log.h"

namespace lockstep::controller {
namespace {

// Long enough to batch the events of a busy API server for one job, too short to be noticed.
constexpr std::chrono::milliseconds kBatchWindow{50};

}  // namespace

Controller::~Controller() {
  for (std::jthread& worker : workers_) worker.request_stop();
}

void Controller::Start(int workers) {
  for (int i = 0; i < workers; ++i) {
    workers_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
  }
}

void Controller::Enqueue(const std::string& key) {
  observer_.OnAdded();
  queue_.Add(key, reconciler_.PriorityOf(key));
}

void Controller::EnqueueSoon(const std::string& key) {
  observer_.OnAdded();
  queue_.AddAfter(key, kBatchWindow, reconciler_.PriorityOf(key));
}

void Controller::Work(const std::stop_token& stop) {
  while (const auto item = queue_.Get(stop)) {
    ReconcileOnce(*item);
    queue_.Done(item->key);
  }
}

void Controller::ReconcileOnce(const WorkQueue::Item& item) {
  observer_.OnStarted(item.waited);
  const SteadyTime begin = clock_.Steady();
  Result<Outcome> outcome = Error{};
  if (const auto ran = Guarded([&] { outcome = reconciler_.Reconcile(item.key); }); !ran.ok())
    outcome = ran.error();
  const Seconds worked = clock_.Steady() - begin;
  if (!outcome.ok()) {
    // A conflict only means that the cache was stale; it is not worth a warning.
    const bool is_stale = outcome.error().code == ErrorCode::kConflict;
    log::Write(is_stale ? log::Level::kDebug : log::Level::kWarning, "reconcile failed, will retry",
               {{"object", item.key}, {"error", outcome.error().ToString()}});
    observer_.OnFinished(ReconcileResult::kError, worked);
    observer_.OnRetry();
    queue_.AddRateLimited(item.key, reconciler_.PriorityOf(item.key));
    return;
  }
  queue_.Forget(item.key);
  if (outcome->requeue_after)
    queue_.AddAfter(item.key, *outcome->requeue_after, reconciler_.PriorityOf(item.key));
  observer_.OnFinished(outcome->requeue_after ? ReconcileResult::kRequeueAfter : ReconcileResult::kSuccess,
                       worked);
}

}  // namespace lockstep::controller
