#include "tests/integration/operator/scenarios.h"

#include "operator/kube/object.h"
#include "runtime/common/base/json.h"

namespace lockstep::testing {
namespace {

// No scheduler knows the pods: they stay where the test puts them. They never find a node, and the status
// must not say so after a time that a slow run exceeds and a quick one does not.
Json Spec(int replicas, int max_restarts, const std::string& clean_pods) {
  Json spec = *ParseJson(R"({
      "elasticPolicy": {"minReplicas": 1, "maxReplicas": 4, "shrinkAfterSeconds": 86400},
      "worker": {"template": {"spec": {"schedulerName": "nobody",
                                       "containers": [{"name": "trainer", "image": "localhost/none:1"}]}}},
      "training": {"model": {"name": "mlp"}, "data": {"format": "synthetic"}, "globalBatchSize": 64, "steps": 10}})");
  spec["worker"]["replicas"] = replicas;
  spec["failurePolicy"]["maxRestarts"] = max_restarts;
  spec["runPolicy"]["cleanPodPolicy"] = clean_pods;
  return spec;
}

int64_t Number(const TestJob& job, std::string_view field) { return IntAt(job.job(), {"status", field}); }

std::string PodUid(const TestJob& job, int slot) {
  const auto pods = job.pods();
  const auto found = pods.find(slot);
  return found == pods.end() ? "" : kube::UidOf(*found->second);
}

// The pods of slots 0 to n - 1, and a status that says so.
auto HasPods(int count) {
  return [count](const TestJob& job) {
    return job.pods().size() == static_cast<std::size_t>(count) && Number(job, "replicas") == count;
  };
}

Step Created(int max_restarts = 3, const std::string& clean_pods = "Running") {
  return {[=](TestJob& job) { job.Create(Spec(2, max_restarts, clean_pods)); }, HasPods(2)};
}

Step Running() {
  return {[](TestJob& job) {
            for (const auto& [slot, pod] : job.pods()) job.SetPod(slot, "Running");
          },
          [](const TestJob& job) {
            return Number(job, "readyReplicas") == static_cast<int64_t>(job.pods().size());
          }};
}

Step Scaled(int replicas) {
  return {[replicas](TestJob& job) { job.Patch({{"worker", {{"replicas", replicas}}}}); }, HasPods(replicas)};
}

// Slot 1 fails and is replaced; the failure is the job's `attempt`-th.
Step Replaced(int attempt) {
  return {[](TestJob& job) {
            job.note = PodUid(job, 1);
            job.SetPod(1, "Failed", 1);
          },
          [attempt](const TestJob& job) {
            const std::string now = PodUid(job, 1);
            return !now.empty() && now != job.note && Number(job, "attempt") == attempt &&
                   job.pods().size() == 2;
          }};
}

Step Finished(int exit_code, const std::string& state) {
  return {[exit_code](TestJob& job) {
            for (const auto& [slot, pod] : job.pods()) {
              job.SetPod(slot, exit_code == 0 ? "Succeeded" : "Failed", exit_code);
              if (exit_code != 0) break;
            }
          },
          [state](const TestJob& job) { return job.state() == state; }};
}

}  // namespace

std::vector<Scenario> AllScenarios() {
  const auto suspend = [](bool value) { return [value](TestJob& job) { job.Patch({{"suspend", value}}); }; };
  const Step suspended{suspend(true),
                       [](const TestJob& job) { return job.pods().empty() && job.state() == "Suspended"; }};
  const Step resumed{suspend(false), HasPods(2)};
  const Step deleted{[](TestJob& job) { job.Delete(); },
                     [](const TestJob& job) { return job.job().is_null() && job.pods().empty(); }};
  return {
      {"create", {}, {Created()}},
      {"scale", {Created()}, {Scaled(4), Scaled(1)}},
      {"suspend", {Created(), Running()}, {suspended, resumed}},
      {"failure", {Created(), Running()}, {Replaced(1), Running()}},
      {"restart", {Created(1), Running(), Replaced(1), Running()}, {Finished(1, "Failed")}},
      {"complete", {Created(3, "All"), Running()}, {Finished(0, "Complete")}},
      {"delete", {Created(), Running()}, {deleted}},
  };
}

}  // namespace lockstep::testing
