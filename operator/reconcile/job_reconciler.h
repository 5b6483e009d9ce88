#pragma once
// observe → plan → apply for one job. Called from the controller's workers, for each job by one at a time.

#include <functional>
#include <map>
#include <string>

#include "operator/controller/reconciler.h"
#include "operator/kube/event_recorder.h"
#include "operator/reconcile/apply.h"
#include "operator/reconcile/claims.h"
#include "operator/reconcile/gpus.h"
#include "operator/reconcile/observe.h"
#include "operator/reconcile/plan.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/base/once_per_key.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::reconcile {

// Receives the outcome of each pass, for metrics. Must not block.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void OnJob(const api::TrainingJob& job, const api::TrainingJobStatus& status, const GpuCount& gpus,
                     const rendezvous::RendezvousView& rendezvous) = 0;
  virtual void OnJobGone(const protocol::JobIdentity& job) = 0;
};

class JobReconciler final : public controller::Reconciler {
 public:
  struct Dependencies {
    kube::KubeClient& client;
    Caches& caches;
    rendezvous::RendezvousService& rendezvous;
    kube::EventRecorder& events;
    JobObserver& observer;
    const Clock& clock;
  };

  // `settings` is called in each pass, from the threads of the controller.
  JobReconciler(Dependencies dependencies, std::function<ClusterSettings()> settings);

  Result<controller::Outcome> Reconcile(const std::string& key) override;
  // Low until a first round has formed: if many jobs start at once, running jobs get their replacements
  // first.
  [[nodiscard]] controller::Priority PriorityOf(const std::string& key) const override;

  [[nodiscard]] bool IsTracked(const std::string& key) const;
  // Drops the rendezvous and the metrics of a job that this process no longer leads or that no longer exists.
  void Forget(const std::string& key);
  void ForgetThose(const std::function<bool(const std::string& uid)>& which);

 private:
  void Remember(const std::string& key, const protocol::JobIdentity& job);
  void ReportIgnored(const api::TrainingJob& job, const std::vector<kube::EventNote>& notes);
  void ConfigureRendezvous(const Observed& observed, const Plan& plan);
  Result<void> WriteOutcome(const Observed& observed, const api::TrainingJobStatus& status,
                            const GpuCount& gpus, const std::vector<kube::EventNote>& notes);
  Error WriteRefusal(const Observed& observed, const Plan& plan, const Error& refusal);

  Dependencies dependencies_;
  const std::function<ClusterSettings()> settings_;
  Applier applier_;
  Claims claims_;
  mutable Mutex mutex_;
  std::map<std::string, protocol::JobIdentity> known_ LOCKSTEP_GUARDED_BY(mutex_);  // by key
  OncePerKey reported_ LOCKSTEP_GUARDED_BY(mutex_);  // jobs of other installations
};

}  // namespace lockstep::reconcile
