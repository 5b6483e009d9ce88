#pragma once
// One job on the API server: the user, the kubelets and the eyes of the test. Any thread may read; one thread
// acts on a job.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/kube/informer.h"
#include "operator/kube/rest_client.h"

namespace lockstep::testing {

// A namespace and all that is in it.
class TestNamespace {
 public:
  TestNamespace(http::HttpTransport& transport, std::string name);

  const std::string name;
  kube::RestClient client;
  // Grouped by the job that their label names.
  kube::Store jobs;
  kube::Store pods;
  kube::Store services;
  kube::Store config_maps;

 private:
  void Watch(const kube::Resource& resource, kube::Store& store);

  std::vector<std::unique_ptr<kube::Informer>> informers_;  // last: they fill the stores
};

class TestJob {
 public:
  TestJob(TestNamespace& home, std::string name) : home_(home), name_(std::move(name)) {}

  // The user. Each is a merge patch or an object as kubectl would send it; the answer is checked.
  void Create(const Json& spec);
  void Patch(const Json& spec);
  void Delete();
  // The kubelet: the pod's phase, and its container's exit code where it ended.
  void SetPod(int slot, const std::string& phase, int exit_code = 0);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] Json job() const;                          // null: gone
  [[nodiscard]] std::map<int, kube::Object> pods() const;  // by slot
  [[nodiscard]] std::string state() const { return StringAt(job(), {"status", "state"}); }
  // Everything that the job is and has, without what differs from run to run: names, uids, times.
  [[nodiscard]] Json Canonical() const;

  // What a step keeps for its own end, such as a pod's uid.
  std::string note;

 private:
  [[nodiscard]] std::string Neutral(std::string text) const;

  TestNamespace& home_;
  const std::string name_;
};

}  // namespace lockstep::testing
