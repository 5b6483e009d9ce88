#pragma once
// Kinds that a cluster may lack: the PodGroups of its schedulers, and the kinds of Kueue. A thread finds out
// which of them are served and readable, fills their caches, and then marks them as served in Caches. A kind
// that cannot be listed at the moment (an outage, a failing conversion webhook) delays nothing: it counts as
// not served until a later attempt succeeds. Owned by the process.

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "operator/kube/informer.h"
#include "operator/reconcile/observe.h"
#include "runtime/common/base/clock.h"

namespace lockstep {

struct OptionalKindsOptions {
  std::vector<std::string> name_spaces{""};  // of the jobs; "": all
  std::string selector;                      // label selector of the objects of jobs
  // Called when an object of a job has changed, with its kind in the form of KeyOfKind.
  std::function<void(const std::string& kind, const kube::ObjectChange& change)> on_owned;
  std::function<void()> on_served;     // called when something that all jobs depend on has changed
  Milliseconds retry{10'000};          // after an attempt without a definite answer
  Milliseconds period{60'000};         // how often to look for Kueue if it is not installed
  Milliseconds sync_patience{10'000};  // how long the thread waits for the first list of a kind
};

class OptionalKinds {
 public:
  OptionalKinds(kube::KubeReader& reader, reconcile::Caches& caches, OptionalKindsOptions options);

  void Start();
  // True once every kind was looked for, and those found are in the caches.
  [[nodiscard]] bool has_looked() const { return has_looked_; }

 private:
  enum class Presence { kServed, kAbsent, kUnknown };
  // Informers of kinds that belong together. A kind is served once all of them have their first list.
  struct Found {
    kube::Resource kind;
    std::vector<std::unique_ptr<kube::Informer>> informers;
    bool is_served = false;
  };

  void Run(const std::stop_token& stop);
  // True if the answer is definite for every kind.
  bool LookForGangKinds(const std::stop_token& stop);
  bool LookForKueue(const std::stop_token& stop);
  Presence Look(const kube::Resource& resource, const std::string& name_space, const std::stop_token& stop);
  // Adds a cluster-scoped kind.
  void Add(Found& found, const kube::Resource& resource, kube::Store& store,
           const kube::Informer::Handler& handler);
  // Adds a kind whose objects belong to jobs.
  void AddOwned(Found& found, const kube::Resource& resource);
  void Begin(Found found);
  void Serve(const std::stop_token& stop);

  kube::KubeReader& reader_;
  reconcile::Caches& caches_;
  const OptionalKindsOptions options_;
  std::set<std::string> absent_;  // gang kinds that are not looked for again
  std::set<std::string> warned_;  // kinds that could not be listed in the last attempt
  std::vector<Found> found_;      // these three: owned by thread_
  std::atomic<bool> has_looked_ = false;
  std::jthread thread_;  // last: joins before the other members are destroyed
};

}  // namespace lockstep
