#pragma once
// The only reader: caches and rendezvous → Observed. Any thread.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "operator/kube/store.h"
#include "operator/reconcile/observed.h"
#include "runtime/common/base/mutex.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::reconcile {

// The caches. Jobs are indexed by uid; pods and other objects of jobs by the job that they belong to
// (owner.h); pods also by node (pods.h). The cache of nodes is empty if the operator may not read nodes.
struct Caches {
  Caches();
  kube::Store jobs;
  kube::Store pods;
  kube::Store removals;     // pods that remove checkpoints
  kube::Store name_spaces;  // used only with a namespace selector: the namespaces whose jobs are run
  kube::Store nodes;
  kube::Store flavors;  // ResourceFlavors of Kueue
  kube::Store priority_classes;
  kube::Store workload_priority_classes;  // of Kueue
  // By KeyOfKind: kOwnedKinds, kGangKinds and kWorkloads.
  std::map<std::string, kube::Store> owned;

  // Makes the objects of an optional kind visible to passes, once its cache is filled. Any thread.
  void Serve(const kube::Resource& resource);
  [[nodiscard]] std::set<std::string> served() const;

 private:
  mutable Mutex mutex_;
  std::set<std::string> served_ LOCKSTEP_GUARDED_BY(mutex_);
};

inline constexpr kube::Resource kJobs{api::kGroup, api::kVersion, api::kPlural, api::kKind};

// nullopt if the job is gone.
[[nodiscard]] std::optional<Observed> Observe(const kube::ObjectKey& key, const Caches& caches,
                                              const rendezvous::RendezvousService& rendezvous,
                                              const ClusterSettings& settings, WallTime now);

[[nodiscard]] protocol::JobIdentity IdentityOf(const api::TrainingJob& job);

}  // namespace lockstep::reconcile
