#pragma once
// Builds an Observed for tests of the decisions: a valid job with its pods.
//   JobWorld().Replicas(3).Running(0).Failed(1, 3, "no data").observed()

#include <functional>
#include <string>

#include "operator/reconcile/desired.h"
#include "operator/reconcile/observed.h"
#include "operator/reconcile/owned_objects.h"
#include "runtime/common/api/conditions.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job_json.h"

namespace lockstep::testing {

class JobWorld {
 public:
  JobWorld() {
    const Json json = *ParseJson(R"({
      "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
      "metadata": {"name": "job", "namespace": "team", "uid": "job-uid", "generation": 1, "resourceVersion": "1",
                   "finalizers": ["lockstep.dev/job"]},
      "spec": {
        "worker": {"replicas": 2, "template": {"spec": {"containers": [{"name": "trainer", "image": "worker"}]}}},
        "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}
      }})");
    std::vector<std::string> violations;
    observed_.job = api::TrainingJobFromJson(json, violations);
    LOCKSTEP_CHECK(violations.empty(), violations.empty() ? "" : violations.front());
    observed_.settings = {.rendezvous_url = "https://rendezvous.system.svc:29400", .ca_pem = "pem"};
    observed_.now = WallTime(std::chrono::seconds(1'767'225'600));
    observed_.rendezvous.listening = std::chrono::hours(1);
    SyncObjects();
  }

  JobWorld& Replicas(int32_t replicas) {
    observed_.job.spec.worker.replicas = replicas;
    return SyncObjects();
  }
  JobWorld& Elastic(int32_t min, int32_t max) {
    observed_.job.spec.elastic_policy = api::ElasticPolicy{.min_replicas = min, .max_replicas = max};
    return SyncObjects();
  }
  JobWorld& MaxRestarts(int32_t restarts) {
    observed_.job.spec.failure_policy.max_restarts = restarts;
    return *this;
  }
  // The objects beside the pods as they should be.
  JobWorld& SyncObjects() {
    observed_.owned.clear();
    for (auto& [resource, object, _] : reconcile::DesiredOwnedObjects(observed_.job, observed_.settings)) {
      observed_.owned.emplace(reconcile::KeyOfKind(resource), std::move(object));
    }
    return *this;
  }
  Json& Owned(const kube::Resource& resource) { return observed_.owned.at(reconcile::KeyOfKind(resource)); }

  reconcile::Pod& Add(int32_t slot, reconcile::PodPhase phase) {
    reconcile::Pod pod;
    pod.name = api::PodName("job", slot);
    pod.uid = "uid-" + std::to_string(slot);
    pod.resource_version = std::to_string(100 + slot);
    pod.slot = slot;
    pod.phase = phase;
    if (phase != reconcile::PodPhase::kPending) pod.node = "node-" + std::to_string(slot);
    pod.ready = phase == reconcile::PodPhase::kRunning;
    pod.created = observed_.now - std::chrono::minutes(5);
    observed_.pods.push_back(pod);
    return observed_.pods.back();
  }
  JobWorld& Pending(int32_t slot) {
    Add(slot, reconcile::PodPhase::kPending);
    return *this;
  }
  JobWorld& Running(int32_t slot) {
    Add(slot, reconcile::PodPhase::kRunning);
    return *this;
  }
  JobWorld& Succeeded(int32_t slot) {
    Add(slot, reconcile::PodPhase::kSucceeded).exit_code = 0;
    return *this;
  }
  JobWorld& Failed(int32_t slot, int exit_code, const std::string& message = "") {
    reconcile::Pod& pod = Add(slot, reconcile::PodPhase::kFailed);
    pod.exit_code = exit_code;
    pod.message = message;
    return *this;
  }
  // A round of the given members has made `step` steps.
  JobWorld& Round(int64_t round, const std::vector<int32_t>& slots, int64_t step) {
    rendezvous::RendezvousView& view = observed_.rendezvous;
    view.round = round;
    view.world_size = static_cast<int>(slots.size());
    view.members.clear();
    for (const int32_t slot : slots) view.members.push_back(api::PodName("job", slot));
    view.progress.round = round;
    view.progress.step = step;
    view.progress.total_steps = 1000;
    view.last_progress_time = observed_.now;
    return *this;
  }
  JobWorld& Set(const std::function<void(reconcile::Observed&)>& change) {
    change(observed_);
    return *this;
  }

  [[nodiscard]] reconcile::Observed& observed() { return observed_; }

 private:
  reconcile::Observed observed_;
};

}  // namespace lockstep::testing
