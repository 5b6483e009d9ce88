#pragma once
// The only reader: caches and rendezvous → Observed. Any thread.

#include <map>
#include <optional>
#include <string>

#include "operator/kube/store.h"
#include "operator/reconcile/observed.h"
#include "runtime/common/rendezvous/service.h"

namespace lockstep::reconcile {

// The caches; jobs are indexed by uid, pods and the other objects of jobs by the job that they belong to
// (owner.h). That of the nodes is empty where the operator may not read them.
struct Caches {
  Caches();
  kube::Store jobs;
  kube::Store pods;
  kube::Store removals;  // pods that remove checkpoints
  kube::Store nodes;
  kube::Store flavors;  // of Kueue
  kube::Store priority_classes;
  kube::Store workload_priority_classes;  // of Kueue
  // By KeyOfKind: kOwnedKinds, and of kGangKinds and kWorkloads those that are served.
  std::map<std::string, kube::Store> owned;

  // Before the first reader.
  void AddOwned(const kube::Resource& resource);
};

inline constexpr kube::Resource kJobs{api::kGroup, api::kVersion, api::kPlural, api::kKind};

// nullopt where the job is gone.
[[nodiscard]] std::optional<Observed> Observe(const kube::ObjectKey& key, const Caches& caches,
                                              const rendezvous::RendezvousService& rendezvous,
                                              const ClusterSettings& settings, WallTime now);

[[nodiscard]] protocol::JobIdentity IdentityOf(const api::TrainingJob& job);

}  // namespace lockstep::reconcile
