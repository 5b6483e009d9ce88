#include "operator/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "operator/telemetry/job_series.h"
#include "operator/telemetry/recovery_series.h"
#include "operator/telemetry/scaling_series.h"
#include "operator/telemetry/start_series.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/telemetry/exposition.h"

namespace lockstep::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

const Labels kController = {{"controller", "distributedtrainingjob"}};
const Labels kQueue = {{"name", "distributedtrainingjob"}, {"controller", "distributedtrainingjob"}};
const Histogram::BucketBoundaries kReconcileBuckets = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                       0.25,  0.5,   1,    2.5,   10,   60};
const Histogram::BucketBoundaries kQueueBuckets = {1e-6, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 1, 10, 60};

Family<Counter>& CounterFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}
Gauge& OneGauge(prometheus::Registry& registry, const char* name, const char* help, const Labels& labels) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}
Histogram& OneHistogram(prometheus::Registry& registry, const char* name, const char* help,
                        const Labels& labels, const Histogram::BucketBoundaries& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

Labels WithResult(Labels labels, const std::string& name, const std::string& value) {
  labels[name] = value;
  return labels;
}

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& host) : api_host(host) {
    for (std::size_t i = 0; i < kResults.size(); ++i) {
      results.at(i) = &reconciles.Add(WithResult(kController, "result", kResults.at(i)));
    }
    AddBuildInfo(registry, "lockstep-operator");
  }

  static constexpr std::array<const char*, 3> kResults = {"success", "requeue_after", "error"};

  prometheus::Registry registry;
  const std::string api_host;
  Family<Counter>& reconciles =
      CounterFamily(registry, "controller_runtime_reconcile_total", "Reconciliations by result.");
  std::array<Counter*, 3> results{};
  Counter& errors =
      CounterFamily(registry, "controller_runtime_reconcile_errors_total", "Reconciliations that failed.")
          .Add(kController);
  Histogram& reconcile_seconds = OneHistogram(registry, "controller_runtime_reconcile_time_seconds",
                                              "Time of one reconciliation.", kController, kReconcileBuckets);
  Gauge& max_workers = OneGauge(registry, "controller_runtime_max_concurrent_reconciles",
                                "Workers of the controller.", kController);
  Gauge& active_workers =
      OneGauge(registry, "controller_runtime_active_workers", "Workers that reconcile now.", kController);
  Gauge& depth = OneGauge(registry, "workqueue_depth", "Keys that wait.", kQueue);
  Counter& adds = CounterFamily(registry, "workqueue_adds_total", "Keys added.").Add(kQueue);
  Counter& retries =
      CounterFamily(registry, "workqueue_retries_total", "Keys added after a failure.").Add(kQueue);
  Histogram& queue_seconds =
      OneHistogram(registry, "workqueue_queue_duration_seconds", "Time a key waited before it was processed.",
                   kQueue, kQueueBuckets);
  Histogram& work_seconds = OneHistogram(registry, "workqueue_work_duration_seconds",
                                         "Time a key was processed.", kQueue, kQueueBuckets);
  Gauge& unfinished_seconds =
      OneGauge(registry, "workqueue_unfinished_work_seconds",
               "Seconds for which the keys in progress have been processed, summed.", kQueue);
  Gauge& longest_seconds = OneGauge(registry, "workqueue_longest_running_processor_seconds",
                                    "Seconds for which the longest of them has been processed.", kQueue);
  Family<Counter>& requests = CounterFamily(registry, "rest_client_requests_total",
                                            "Requests to the API server; code <error> without an answer.");
  Gauge* leading = nullptr;
  Gauge* shards = nullptr;
  Mutex mutex;
  JobSeries jobs LOCKSTEP_GUARDED_BY(mutex){registry};
  StartSeries starts LOCKSTEP_GUARDED_BY(mutex){registry};
  ScalingSeries scaling LOCKSTEP_GUARDED_BY(mutex){registry};
  RecoverySeries recoveries LOCKSTEP_GUARDED_BY(mutex){registry};
  // Since when each worker has been processing its key.
  std::map<std::thread::id, SteadyTime> working LOCKSTEP_GUARDED_BY(mutex);
};

Metrics::Metrics(const Clock& clock, int workers, const std::string& api_host, const std::string& lease)
    : clock_(clock), families_(std::make_unique<Families>(api_host)) {
  families_->max_workers.Set(workers);
  families_->leading = &OneGauge(families_->registry, "leader_election_master_status",
                                 "1 if this process leads a shard of the jobs.", {{"name", lease}});
  families_->shards = &OneGauge(families_->registry, "lockstep_shards",
                                "Shards of the jobs, of 16, that this process leads.", {{"name", lease}});
}

Metrics::~Metrics() = default;

void Metrics::OnAdded() { families_->adds.Increment(); }
void Metrics::OnRetry() { families_->retries.Increment(); }

void Metrics::OnStarted(std::chrono::duration<double> waited) {
  families_->active_workers.Increment();
  families_->queue_seconds.Observe(waited.count());
  const MutexLock lock(families_->mutex);
  families_->working[std::this_thread::get_id()] = clock_.Steady();
}

void Metrics::OnFinished(controller::ReconcileResult result, std::chrono::duration<double> worked) {
  families_->active_workers.Decrement();
  families_->results.at(static_cast<std::size_t>(result))->Increment();
  if (result == controller::ReconcileResult::kError) families_->errors.Increment();
  families_->reconcile_seconds.Observe(worked.count());
  families_->work_seconds.Observe(worked.count());
  const MutexLock lock(families_->mutex);
  families_->working.erase(std::this_thread::get_id());
}

void Metrics::OnJob(const api::TrainingJob& job, const api::TrainingJobStatus& status,
                    const reconcile::GpuCount& gpus, const rendezvous::RendezvousView& rendezvous) {
  const MutexLock lock(families_->mutex);
  families_->jobs.Set(job, status, gpus, rendezvous);
  families_->scaling.Set(job, status.scaling);
  families_->starts.Count(job.status, status);
  families_->recoveries.Count(job, rendezvous.changes);
}

void Metrics::OnJobGone(const protocol::JobIdentity& job) {
  const MutexLock lock(families_->mutex);
  families_->jobs.Remove(job.uid);
  families_->scaling.Remove(job.uid);
  families_->recoveries.Forget(job.uid);
}

void Metrics::OnRequest(const std::string& method, int status) {
  families_->requests
      .Add({{"method", method},
            {"code", status == 0 ? "<error>" : std::to_string(status)},
            {"host", families_->api_host}})
      .Increment();
}

void Metrics::SetShards(std::size_t count) {
  families_->leading->Set(count > 0 ? 1 : 0);
  families_->shards->Set(static_cast<double>(count));
}

http::Response Metrics::Expose(std::size_t queue_depth) {
  families_->depth.Set(static_cast<double>(queue_depth));
  Seconds sum{};
  Seconds longest{};
  {
    const MutexLock lock(families_->mutex);
    for (const auto& [worker, since] : families_->working) {
      const Seconds seconds = clock_.Steady() - since;
      sum += seconds;
      longest = std::max(longest, seconds);
    }
  }
  families_->unfinished_seconds.Set(sum.count());
  families_->longest_seconds.Set(longest.count());
  return MetricsResponse(families_->registry);
}

}  // namespace lockstep::telemetry
