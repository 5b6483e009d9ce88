#pragma once
// Everything that a decision may depend on. Values, no pointers into caches. Pure.

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/reconcile/nodes.h"
#include "operator/reconcile/pods.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/base/clock.h"
#include "runtime/common/base/json.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// The operator's settings that affect jobs.
struct ClusterSettings {
  std::string rendezvous_url;
  std::string ca_pem;          // may change; empty: plain HTTP, for development
  std::string launcher_image;  // image with `lockstep`, for pods whose image lacks it; empty: there is none
  std::string launcher_pull_policy;                 // empty: the default of Kubernetes
  std::string managed_by{api::kManagedByLockstep};  // spec.managedBy of the jobs of this installation
  // true: jobs of the namespaces in Caches::name_spaces; false: of all watched namespaces
  bool selects_namespaces = false;
  std::string installation;  // see kAnnotationInstallation
  // Whether this installation takes over the jobs of one that is gone: it has a Lease itself, and may read
  // those of others, which an operator of listed namespaces may not.
  bool takes_over = false;
};

struct Observed {
  api::TrainingJob job;
  // Problems of the spec, each naming its field. A field that is unreadable here was accepted by the
  // definition in the cluster, so the definition and this operator are of different versions.
  std::vector<std::string> unreadable;
  std::vector<std::string> violations;  // of rules between fields
  std::vector<Pod> pods;                // pods that belong to this job (owner.h)
  std::optional<Pod> removal;           // the pod that removes the checkpoints of a deleted job
  bool claim_is_abandoned = false;      // by another installation (claims.h)
  bool is_namespace_ours = true;        // false: another installation runs the jobs of this namespace
  bool namespace_ends = false;          // the namespace is being deleted: nothing can be created in it
  // The nodes of its pods, by name; absent if nodes are unknown.
  std::optional<std::map<std::string, Node>> nodes;
  std::map<std::string, Json> owned;    // the job's objects other than pods, by KeyOfKind
  std::set<std::string> served;         // served kinds of kGangKinds and kWorkloads, by KeyOfKind
  std::map<std::string, Json> flavors;  // ResourceFlavors that Kueue assigned to the job, by name
  // The job's priority class in its queue (kueue_priority.h): the one that it names, else the default;
  // absent: there is none.
  std::optional<Json> priority_class;
  rendezvous::RendezvousView rendezvous;
  ClusterSettings settings;
  WallTime now{};
};

[[nodiscard]] inline bool IsValid(const Observed& observed) {
  return observed.unreadable.empty() && observed.violations.empty();
}

[[nodiscard]] inline bool HasFinalizer(const api::TrainingJob& job) {
  const auto& finalizers = job.metadata.finalizers;
  return std::find(finalizers.begin(), finalizers.end(), api::kFinalizer) != finalizers.end();
}

// The installation that has claimed the job; empty: none has.
[[nodiscard]] inline std::string InstallationOf(const api::TrainingJob& job) {
  const auto found = job.metadata.annotations.find(std::string(api::kAnnotationInstallation));
  return found == job.metadata.annotations.end() ? "" : found->second;
}

}  // namespace lockstep::reconcile
