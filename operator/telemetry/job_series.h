#pragma once
// The time series of each job, the number of jobs by state, and the reasons of failed jobs. Not synchronised:
// metrics.cc calls it under its lock.

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <map>
#include <string>
#include <vector>

#include "operator/reconcile/gpus.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::telemetry {

class JobSeries {
 public:
  explicit JobSeries(prometheus::Registry& registry);

  void Set(const api::TrainingJob& job, const api::TrainingJobStatus& status, const reconcile::GpuCount& gpus,
           const rendezvous::RendezvousView& rendezvous);
  void Remove(const std::string& uid);

 private:
  struct Series {
    std::string state;
    prometheus::Gauge* info = nullptr;
    prometheus::Gauge* in_state = nullptr;  // absent before the first state
    prometheus::Gauge* world_size = nullptr;
    prometheus::Gauge* replicas = nullptr;
    prometheus::Gauge* ready_replicas = nullptr;
    prometheus::Gauge* members_in_round = nullptr;
    prometheus::Gauge* members_waiting = nullptr;
    prometheus::Gauge* held_gpus = nullptr;
    prometheus::Gauge* waiting_gpus = nullptr;
    prometheus::Gauge* round = nullptr;
    prometheus::Gauge* step = nullptr;             // absent without spec.training
    prometheus::Gauge* checkpoint_step = nullptr;  // absent without spec.training or spec.checkpoint
    prometheus::Counter* restarts = nullptr;
    prometheus::Gauge* straggler = nullptr;
    prometheus::Gauge* goodput = nullptr;
    prometheus::Counter* productive_seconds = nullptr;
    std::vector<prometheus::Counter*> lost_seconds;  // in the order of api::LostSeconds
  };
  Series Add(const api::TrainingJob& job);
  void CountFailure(const api::TrainingJobStatus& before, const api::TrainingJobStatus& now);
  void SetState(const api::TrainingJob& job, const std::string& state, Series& series);

  prometheus::Family<prometheus::Gauge>& jobs_;
  prometheus::Family<prometheus::Counter>& failed_jobs_;
  prometheus::Family<prometheus::Gauge>& info_;
  prometheus::Family<prometheus::Gauge>& job_state_;
  prometheus::Family<prometheus::Gauge>& world_size_;
  prometheus::Family<prometheus::Gauge>& replicas_;
  prometheus::Family<prometheus::Gauge>& ready_replicas_;
  prometheus::Family<prometheus::Gauge>& members_;
  prometheus::Family<prometheus::Gauge>& gpus_;
  prometheus::Family<prometheus::Gauge>& round_;
  prometheus::Family<prometheus::Gauge>& step_;
  prometheus::Family<prometheus::Gauge>& checkpoint_step_;
  prometheus::Family<prometheus::Counter>& restarts_;
  prometheus::Family<prometheus::Gauge>& straggler_;
  prometheus::Family<prometheus::Gauge>& goodput_;
  prometheus::Family<prometheus::Counter>& productive_seconds_;
  prometheus::Family<prometheus::Counter>& lost_seconds_;
  std::map<std::string, Series> series_;  // by uid
};

}  // namespace lockstep::telemetry
