#pragma once
// Kinds that a cluster may lack: PodGroups of its schedulers, and Kueue's. A thread finds out which of them
// are served and may be read, fills their caches, and then has Caches say that they are served. A kind that
// cannot be listed at the moment (an outage, a conversion webhook that fails) delays nobody: it counts as not
// served until a later attempt. Owned by the process.

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
  std::string selector;                      // of the objects of jobs
  // An object of a job has changed; its kind as KeyOfKind writes it.
  std::function<void(const std::string& kind, const kube::ObjectChange& change)> on_owned;
  std::function<void()> on_served;     // what all jobs depend on has changed
  Milliseconds retry{10'000};          // after an attempt that could not tell
  Milliseconds period{60'000};         // Kueue that is not there is looked for again
  Milliseconds sync_patience{10'000};  // so long the thread waits for the first list of a kind
};

class OptionalKinds {
 public:
  OptionalKinds(kube::KubeReader& reader, reconcile::Caches& caches, OptionalKindsOptions options);

  void Start();
  // True once all kinds were looked for once, and those found are in the caches.
  [[nodiscard]] bool has_looked() const { return has_looked_; }

 private:
  enum class Presence { kServed, kAbsent, kUnknown };
  // Informers of what belongs together, and the kind that is served once all of them have their first list.
  struct Found {
    kube::Resource kind;
    std::vector<std::unique_ptr<kube::Informer>> informers;
    bool is_served = false;
  };

  void Run(const std::stop_token& stop);
  // True where nothing is unknown.
  bool LookForGangKinds(const std::stop_token& stop);
  bool LookForQueue(const std::stop_token& stop);
  Presence Look(const kube::Resource& resource, const std::string& name_space, const std::stop_token& stop);
  // A kind of the cluster.
  void Add(Found& found, const kube::Resource& resource, kube::Store& store,
           const kube::Informer::Handler& handler);
  // A kind whose objects belong to jobs.
  void AddOwned(Found& found, const kube::Resource& resource);
  void Begin(Found found);
  void Serve(const std::stop_token& stop);

  kube::KubeReader& reader_;
  reconcile::Caches& caches_;
  const OptionalKindsOptions options_;
  std::set<std::string> absent_;  // kinds of gangs that are not looked for again
  std::set<std::string> warned_;  // kinds that could not be listed the last time
  std::vector<Found> found_;      // these three: owned by thread_
  std::atomic<bool> has_looked_ = false;
  std::jthread thread_;  // last: joins before the rest goes
};

}  // namespace lockstep
