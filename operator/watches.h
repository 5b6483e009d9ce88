#pragma once
// The watches that fill the caches, and which jobs a change concerns. Owned by the process. The callbacks are
// called on the threads of the informers and must not block.

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "operator/kube/client.h"
#include "operator/kube/informer.h"
#include "operator/optional_kinds.h"
#include "operator/reconcile/false_owners.h"
#include "operator/reconcile/observe.h"
#include "runtime/common/base/clock.h"

namespace lockstep {

struct WatchesOptions {
  std::vector<std::string> name_spaces{""};  // of the jobs; "": all
  std::string namespace_selector;            // empty: whether a job is run does not depend on labels
  std::function<void(const kube::ObjectChange& change)> on_pod;  // a worker's pod; before its job is queued
  std::function<void(const std::string& job)> on_job;            // a job has changed; its key
  std::function<void(const std::string& job)> on_owned;          // objects of a job have changed; its key
  std::function<void()> on_all;                         // something that all jobs depend on has changed
  std::function<bool(const std::string& uid)> is_ours;  // whether this process leads the job
};

class Watches {
 public:
  Watches(kube::KubeReader& reader, reconcile::Caches& caches, const Clock& clock, WatchesOptions options);

  // Returns once the watches run, which needs an answer of the API server, or on `stop`.
  void Start(const std::stop_token& stop);
  // Waits until the caches are filled. Returns false on `stop`.
  [[nodiscard]] bool AwaitCaches(const std::stop_token& stop) const;
  // Checks all objects in the caches: those that were observed before this process led their jobs, too.
  void CheckOwners();

 private:
  void Add(const kube::Resource& resource, const std::string& selector, kube::Store& store,
           const kube::Informer::Handler& handler);
  void AddPods();
  void AddNodes(const std::stop_token& stop);
  void AddOwned(const kube::Resource& resource, const std::string& selector);
  bool MayList(const kube::Resource& resource, const std::stop_token& stop);
  void OnNamespace(const kube::ObjectChange& change);
  void OnNode(const kube::ObjectChange& change);
  void OnOwned(const std::string& kind, const kube::ObjectChange& change);
  void CheckOwner(const std::string& kind, const Json& object);

  kube::KubeReader& reader_;
  reconcile::Caches& caches_;
  const Clock& clock_;
  const WatchesOptions options_;
  reconcile::FalseOwners false_owners_;
  std::vector<std::unique_ptr<kube::Informer>> informers_;
  std::unique_ptr<OptionalKinds> optional_kinds_;
};

}  // namespace lockstep
