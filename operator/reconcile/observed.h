#pragma once
// Everything that a decision may look at. Values, no pointers into caches. Pure.

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

// What jobs need to know of the operator.
struct ClusterSettings {
  std::string rendezvous_url;
  std::string ca_pem;                // changes; empty: plain HTTP, for development
  std::string launcher_image;        // holds `lockstep`, for pods whose image does not; empty: there is none
  std::string launcher_pull_policy;  // empty: Kubernetes' default
  std::string managed_by{api::kManagedByLockstep};  // spec.managedBy of the jobs of this installation
  bool selects_namespaces = false;                  // those in Caches::name_spaces, else all that are watched
  std::string installation;                         // see kAnnotationInstallation
};

struct Observed {
  api::TrainingJob job;
  // Of its spec, each naming its field; both are empty where it is valid. What cannot be read has passed
  // the definition in the cluster, which therefore is of another version than this operator.
  std::vector<std::string> unreadable;
  std::vector<std::string> violations;  // of rules between fields
  std::vector<Pod> pods;                // that belong to this job (owner.h)
  std::optional<Pod> removal;           // the pod that removes the checkpoints of a deleted job
  bool is_namespace_ours = true;        // false: this installation does not look after its jobs
  bool namespace_ends = false;          // nothing can be made in it any more
  // Of its pods, by name; absent where nothing is known of nodes.
  std::optional<std::map<std::string, Node>> nodes;
  std::map<std::string, Json> owned;    // objects beside the pods, by KeyOfKind
  std::set<std::string> served;         // of kGangKinds and kWorkloads, by KeyOfKind
  std::map<std::string, Json> flavors;  // of Kueue that the job was given, by name
  // By which the job queues (see queue_priority.h): the one that it names, else the default; absent: there is
  // none.
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
