#pragma once
// A running job, as `kubectl get --output=json` prints it, and its pods.

#include "runtime/common/api/training_job_json.h"
#include "runtime/common/base/json.h"

namespace lockstep::kubectl_plugin {

inline Json RunningJob() {
  return Json::parse(R"({
    "apiVersion": "lockstep.dev/v1alpha1", "kind": "DistributedTrainingJob",
    "metadata": {"name": "fashion", "namespace": "team", "uid": "6f0c", "generation": 3, "resourceVersion": "914",
      "creationTimestamp": "2026-01-02T03:00:00Z"},
    "spec": {
      "nprocPerNode": 2, "suspend": false,
      "worker": {"replicas": 3, "containerName": "trainer", "template": {"spec": {"containers": [
        {"name": "trainer", "image": "registry.example/trainer:1"}]}}},
      "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4},
      "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 128, "steps": 2000},
      "checkpoint": {"uri": "s3://lockstep/fashion", "intervalSteps": 200}},
    "status": {
      "observedGeneration": 3, "state": "Running", "startTime": "2026-01-02T03:00:01Z",
      "replicas": 3, "readyReplicas": 2, "standbyReplicas": 0, "attempt": 1,
      "conditions": [
        {"type": "Scheduled", "status": "True", "reason": "PodsScheduled", "message": "",
         "lastTransitionTime": "2026-01-02T03:00:03Z"},
        {"type": "Progressing", "status": "True", "reason": "Training", "message": "",
         "lastTransitionTime": "2026-01-02T03:00:09Z"},
        {"type": "Degraded", "status": "True", "reason": "ReplicasMissing", "message": "2 of 3 replicas train",
         "lastTransitionTime": "2026-01-02T03:08:00Z"}],
      "rendezvous": {"round": 5, "worldSize": 4},
      "progress": {"step": 500, "totalSteps": 2000, "epoch": 1, "loss": 0.33125, "samplesPerSecond": 5120,
        "lastProgressTime": "2026-01-02T03:09:58Z", "evaluation": {"step": 469, "epoch": 1, "loss": 0.4, "accuracy": 0.875}},
      "checkpoint": {"step": 400, "time": "2026-01-02T03:09:20Z", "uri": "s3://lockstep/fashion/step-000000000400"},
      "goodput": {"since": "2026-01-02T03:00:01Z", "activity": "Training", "ratio": 0.934, "productiveSeconds": 559.5,
        "lostSeconds": {"startup": 20.5, "rendezvous": 3.25, "recompute": 12, "checkpoint": 0.01}},
      "restarts": [
        {"time": "2026-01-02T03:08:00Z", "round": 4, "cause": "Infrastructure", "ranks": [4, 5], "node": "node-2",
         "level": "ReplacePod", "recoverySeconds": 0.42, "lostSteps": 1,
         "message": "round 4: fashion-worker-2: no heartbeat; last lines of fashion-worker-2:\n\u001b[31msecret"}]}})");
}

inline Json With(Json job, const char* path, const char* value) {
  job[Json::json_pointer(path)] = Json::parse(value);
  return job;
}

inline api::TrainingJob Read(const Json& job) {
  std::vector<std::string> violations;
  return api::TrainingJobFromJson(job, violations);
}

inline Json PodList() {
  return Json::parse(R"({"kind": "List", "items": [
    {"metadata": {"name": "fashion-worker-2", "labels": {"lockstep.dev/slot": "2"}}, "spec": {},
     "status": {"phase": "Pending", "containerStatuses": [
       {"name": "trainer", "ready": false, "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}},
    {"metadata": {"name": "fashion-worker-0", "labels": {"lockstep.dev/slot": "0"}}, "spec": {"nodeName": "node-1"},
     "status": {"phase": "Running", "containerStatuses": [
       {"name": "sidecar", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
       {"name": "trainer", "ready": true, "state": {"running": {}}}]}},
    {"metadata": {"name": "fashion-worker-1", "labels": {"lockstep.dev/slot": "1"}}, "spec": {"nodeName": "node-3"},
     "status": {"phase": "Running", "containerStatuses": [{"name": "trainer", "ready": true, "state": {"running": {}}}]}}]})");
}

}  // namespace lockstep::kubectl_plugin
