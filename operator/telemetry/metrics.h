#pragma once
// All metrics of the operator: controller-runtime's, under the names that common dashboards expect, and one
// set of gauges per job, which is removed with the job. All families exist from the start. Any thread; never
// blocks for long.

#include <memory>
#include <string>

#include "operator/controller/observer.h"
#include "operator/reconcile/job_reconciler.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/http/server.h"

namespace lockstep::telemetry {

class Metrics final : public controller::ControllerObserver, public reconcile::JobObserver {
 public:
  Metrics(const Clock& clock, int workers, const std::string& api_host, const std::string& lease);
  ~Metrics() override;

  void OnAdded() override;
  void OnRetry() override;
  void OnStarted(std::chrono::duration<double> waited) override;
  void OnFinished(controller::ReconcileResult result, std::chrono::duration<double> worked) override;
  void OnJob(const api::TrainingJob& job, const api::TrainingJobStatus& status,
             const reconcile::GpuCount& gpus, const rendezvous::RendezvousView& rendezvous) override;
  void OnJobGone(const protocol::JobIdentity& job) override;

  void OnRequest(const std::string& method, int status);  // kube::RequestObserver
  void SetShards(std::size_t count);                      // number of shards whose jobs this process leads

  // The exposition; the caller reads `queue_depth` just before.
  [[nodiscard]] http::Response Expose(std::size_t queue_depth);

 private:
  struct Families;
  const Clock& clock_;
  std::unique_ptr<Families> families_;
};

}  // namespace lockstep::telemetry
