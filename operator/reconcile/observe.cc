#include "operator/reconcile/observe.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/gang.h"
#include "operator/reconcile/kueue_priority.h"
#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/last_reports.h"
#include "operator/reconcile/owned_objects.h"
#include "operator/reconcile/owner.h"
#include "runtime/common/api/names.h"
#include "runtime/common/api/training_job_json.h"
#include "runtime/common/api/validate.h"

namespace lockstep::reconcile {
namespace {

Json WithoutManagedFields(Json job) {
  const auto metadata = job.find("metadata");
  if (metadata == job.end()) return job;
  metadata->erase("managedFields");
  if (const auto annotations = metadata->find("annotations"); annotations != metadata->end()) {
    annotations->erase("kubectl.kubernetes.io/last-applied-configuration");
  }
  return job;
}

Json SlimNamespace(Json name_space) {
  static const kube::FieldMask mask{{"metadata", "name"}, {"metadata", "resourceVersion"}};
  return mask.Apply(std::move(name_space));
}

Json SlimPod(Json pod) { return PodFields().Apply(std::move(pod)); }

Json SlimOwned(Json object) {
  static const kube::FieldMask mask{{"metadata", "name"},
                                    {"metadata", "namespace"},
                                    {"metadata", "uid"},
                                    {"metadata", "resourceVersion"},
                                    {"metadata", "labels"},
                                    {"metadata", "ownerReferences"},
                                    {"metadata", "annotations", std::string(api::kAnnotationMetrics)},
                                    {"spec"},
                                    {"data"},
                                    {"automountServiceAccountToken"}};
  return mask.Apply(std::move(object));
}

Json SlimWorkload(Json workload) {
  static const kube::FieldMask mask{{"metadata", "name"},
                                    {"metadata", "namespace"},
                                    {"metadata", "uid"},
                                    {"metadata", "resourceVersion"},
                                    {"metadata", "labels"},
                                    {"metadata", "ownerReferences"},
                                    {"metadata", "annotations", kAnnotationQueued},
                                    {"metadata", "annotations", kAnnotationSuspended},
                                    {"spec", "priorityClassRef"},
                                    {"spec", "priority"},
                                    {"status", "conditions"},
                                    {"status", "admission"},
                                    {"status", "admissionChecks"}};
  return mask.Apply(std::move(workload));
}

Json SlimFlavor(Json flavor) {
  static const kube::FieldMask mask{
      {"metadata", "name"}, {"metadata", "resourceVersion"}, {"spec", "nodeLabels"}, {"spec", "tolerations"}};
  return mask.Apply(std::move(flavor));
}

Json SlimPriorityClass(Json priority_class) {
  static const kube::FieldMask mask{
      {"metadata", "name"}, {"metadata", "resourceVersion"}, {"value"}, {"globalDefault"}};
  return mask.Apply(std::move(priority_class));
}

// If a race has left several defaults, the lowest counts, as for Kueue.
std::optional<Json> DefaultPriorityClass(const kube::Store& store) {
  std::optional<Json> lowest;
  for (const kube::Object& found : store.All()) {
    if (!BoolAt(*found, {"globalDefault"})) continue;
    if (!lowest || IntAt(*found, {"value"}) < IntAt(*lowest, {"value"})) lowest = *found;
  }
  return lowest;
}

std::optional<Json> PriorityClassOfJob(const api::TrainingJob& job, const Caches& caches) {
  if (job.spec.scheduling_policy.queue_name.empty()) return std::nullopt;
  const auto named = PriorityClassOf(job);
  if (!named) return DefaultPriorityClass(caches.priority_classes);
  const kube::Store& store =
      named->kind == kPriorityClasses ? caches.priority_classes : caches.workload_priority_classes;
  const kube::Object found = store.Get({"", named->name});
  return found == nullptr ? std::nullopt : std::optional(*found);
}

std::map<std::string, Json> FlavorsOfJob(const Observed& observed, const kube::Store& store) {
  std::map<std::string, Json> flavors;
  const Json* workload = WorkloadOf(observed);
  if (workload == nullptr) return flavors;
  for (const std::string& name : FlavorsOf(*workload)) {
    if (const kube::Object flavor = store.Get({"", name})) flavors.emplace(name, *flavor);
  }
  return flavors;
}

// If no node answers, the control plane is the likely problem, so nothing about nodes is known.
std::optional<std::map<std::string, Node>> NodesOf(const std::vector<Pod>& pods, const kube::Store& store) {
  std::map<std::string, Node> nodes;
  bool is_any_lost = false;
  for (const Pod& pod : pods) {
    if (pod.node.empty() || nodes.contains(pod.node)) continue;
    const kube::Object node = store.Get({"", pod.node});
    if (node == nullptr) continue;
    is_any_lost = IsLost(nodes.emplace(pod.node, NodeFromJson(*node)).first->second) || is_any_lost;
  }
  if (nodes.empty() && store.size() == 0) return std::nullopt;
  if (!is_any_lost) return nodes;
  const std::vector<kube::Object> all = store.All();
  const bool some_answer = std::any_of(all.begin(), all.end(),
                                       [](const kube::Object& node) { return !IsLost(NodeFromJson(*node)); });
  return some_answer ? std::optional(std::move(nodes)) : std::nullopt;
}

}  // namespace

Caches::Caches()
    : jobs(WithoutManagedFields, {kube::UidOf}),
      pods(SlimPod, {IndexByJob, IndexByNode}),
      removals(SlimPod),
      name_spaces(SlimNamespace),
      nodes([](Json node) { return NodeFields().Apply(std::move(node)); }),
      flavors(SlimFlavor),
      priority_classes(SlimPriorityClass),
      workload_priority_classes(SlimPriorityClass) {
  const auto add = [this](const kube::Resource& resource) {
    owned.try_emplace(KeyOfKind(resource), resource == kWorkloads ? SlimWorkload : SlimOwned,
                      std::vector<kube::Store::Index>{IndexByJob});
  };
  for (const kube::Resource& resource : kOwnedKinds) add(resource);
  for (const kube::Resource& resource : kGangKinds) add(resource);
  add(kWorkloads);
}

void Caches::Serve(const kube::Resource& resource) {
  const MutexLock lock(mutex_);
  served_.insert(KeyOfKind(resource));
}

std::set<std::string> Caches::served() const {
  const MutexLock lock(mutex_);
  return served_;
}

protocol::JobIdentity IdentityOf(const api::TrainingJob& job) {
  return {job.metadata.namespace_name, job.metadata.name, job.metadata.uid};
}

std::optional<Observed> Observe(const kube::ObjectKey& key, const Caches& caches,
                                const rendezvous::RendezvousService& rendezvous,
                                const ClusterSettings& settings, WallTime now) {
  const kube::Object object = caches.jobs.Get(key);
  if (object == nullptr) return std::nullopt;
  Observed observed;
  observed.job = api::TrainingJobFromJson(*object, observed.unreadable);
  // Rules between fields need fields that could be read.
  if (observed.unreadable.empty()) {
    observed.violations = api::Validate(observed.job);
    if (!observed.job.spec.training && settings.launcher_image.empty()) {
      observed.violations.emplace_back(
          "spec.training: is required, for this operator runs without --launcher-image");
    }
  }
  const std::string index = IndexOf(IdentityOf(observed.job));
  for (const kube::Object& pod : caches.pods.ByIndex(index)) {
    observed.pods.push_back(PodFromJson(*pod, observed.job.spec.worker.container_name));
  }
  const std::string removal = api::RemovalPodName(observed.job.metadata.name, observed.job.metadata.uid);
  if (const kube::Object pod = caches.removals.Get({observed.job.metadata.namespace_name, removal}))
    observed.removal = PodFromJson(*pod, observed.job.spec.worker.container_name);
  observed.served = caches.served();
  std::set<std::string> kinds = observed.served;
  for (const kube::Resource& resource : kOwnedKinds) kinds.insert(KeyOfKind(resource));
  for (const std::string& kind : kinds) {
    for (const kube::Object& owned : caches.owned.at(kind).ByIndex(index))
      observed.owned.emplace(kind, *owned);
  }
  observed.flavors = FlavorsOfJob(observed, caches.flavors);
  observed.priority_class = PriorityClassOfJob(observed.job, caches);
  observed.nodes = NodesOf(observed.pods, caches.nodes);
  observed.rendezvous = rendezvous.View(IdentityOf(observed.job));
  TakeLastReports(IdentityOf(observed.job), observed.pods, observed.rendezvous);
  observed.settings = settings;
  observed.is_namespace_ours =
      !settings.selects_namespaces || caches.name_spaces.Get({"", key.name_space}) != nullptr;
  observed.now = now;
  return observed;
}

}  // namespace lockstep::reconcile
