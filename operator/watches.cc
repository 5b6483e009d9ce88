#include "operator/watches.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "operator/reconcile/nodes.h"
#include "operator/reconcile/owned_objects.h"
#include "runtime/common/api/names.h"
#include "runtime/common/base/json.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"

namespace lockstep {
namespace {

// How long the start waits for the kinds that a cluster may lack.
constexpr Milliseconds kFirstLook{10'000};

const Json& ObjectOf(const kube::ObjectChange& change) {
  return change.after == nullptr ? *change.before : *change.after;
}

std::string KeyOfJob(const kube::ObjectChange& change) { return kube::KeyOf(ObjectOf(change)).ToString(); }

std::string KeyOfOwner(const Json& object) {
  return StringAt(object, {"metadata", "namespace"}) + "/" +
         StringAt(object, {"metadata", "labels", api::kLabelJob});
}

std::string Label(std::string_view name, std::string_view value) {
  return std::string(name) + "=" + std::string(value);
}

// Of the objects of jobs.
std::string OwnedSelector() {
  return Label(api::kLabelManagedBy, api::kManagedByValue) + "," + std::string(api::kLabelJob);
}

}  // namespace

Watches::Watches(kube::KubeReader& reader, reconcile::Caches& caches, const Clock& clock,
                 WatchesOptions options)
    : reader_(reader),
      caches_(caches),
      clock_(clock),
      options_(std::move(options)),
      false_owners_(caches.jobs, clock) {}

void Watches::Start(const std::stop_token& stop) {
  Add(reconcile::kJobs, "", caches_.jobs, [this](const auto& change) { options_.on_job(KeyOfJob(change)); });
  AddPods();
  for (const kube::Resource& resource : reconcile::kOwnedKinds) AddOwned(resource, OwnedSelector());
  AddNodes(stop);
  if (!options_.namespace_selector.empty()) {
    Add(kube::kNamespaces, options_.namespace_selector, caches_.name_spaces,
        [this](const auto& change) { OnNamespace(change); });
  }
  for (const auto& informer : informers_) informer->Start();
  optional_kinds_ = std::make_unique<OptionalKinds>(
      reader_, caches_,
      OptionalKindsOptions{
          .name_spaces = options_.name_spaces,
          .selector = OwnedSelector(),
          .on_owned = [this](const auto& kind, const auto& change) { OnOwned(kind, change); },
          .on_served = options_.on_all});
  optional_kinds_->Start();
}

bool Watches::AwaitCaches(const std::stop_token& stop) const {
  const auto synced = [this] {
    return std::all_of(informers_.begin(), informers_.end(),
                       [](const auto& informer) { return informer->synced(); });
  };
  while (!synced()) {
    if (!PauseFor(std::chrono::milliseconds(5), stop)) return false;
  }
  // Not longer: a kind that does not answer must not delay jobs that do not use it.
  const SteadyTime end = clock_.Steady() + kFirstLook;
  while (!optional_kinds_->has_looked() && clock_.Steady() < end) {
    if (!PauseFor(std::chrono::milliseconds(5), stop)) return false;
  }
  return true;
}

void Watches::CheckOwners() {
  for (const kube::Object& pod : caches_.pods.All()) CheckOwner(reconcile::KeyOfKind(kube::kPods), *pod);
  for (const auto& [kind, store] : caches_.owned) {
    for (const kube::Object& object : store.All()) CheckOwner(kind, *object);
  }
}

// Each listed namespace has watches of its own, so that a Role in it is sufficient.
void Watches::Add(const kube::Resource& resource, const std::string& selector, kube::Store& store,
                  const kube::Informer::Handler& handler) {
  const bool is_of_cluster = resource == kube::kNodes || resource == kube::kNamespaces;
  for (const std::string& name_space : is_of_cluster ? std::vector<std::string>{""} : options_.name_spaces) {
    informers_.push_back(std::make_unique<kube::Informer>(
        reader_,
        kube::InformerOptions{.resource = resource,
                              .name_space = name_space,
                              .label_selector = selector,
                              .definition_may_change = resource == reconcile::kJobs},
        store, handler));
  }
}

void Watches::AddPods() {
  Add(kube::kPods, Label(api::kLabelName, api::kWorkerNameValue), caches_.pods,
      [this](const kube::ObjectChange& change) {
        options_.on_pod(change);
        OnOwned(reconcile::KeyOfKind(kube::kPods), change);
      });
  Add(kube::kPods, Label(api::kLabelName, api::kRemovalNameValue), caches_.removals,
      [this](const auto& change) { options_.on_owned(KeyOfOwner(ObjectOf(change))); });
}

// Nodes are cluster-scoped: an operator that is limited to one namespace may have no permission to read them.
void Watches::AddNodes(const std::stop_token& stop) {
  if (MayList(kube::kNodes, stop)) {
    return Add(kube::kNodes, "", caches_.nodes, [this](const auto& change) { OnNode(change); });
  }
  log::Info(
      "may not read nodes: pods on dead nodes are left to Kubernetes, and healthPolicy.nodeFault and "
      "runPolicy.forceDeleteAfterSeconds do not act");
}

void Watches::AddOwned(const kube::Resource& resource, const std::string& selector) {
  const std::string kind = reconcile::KeyOfKind(resource);
  Add(resource, selector, caches_.owned.at(kind),
      [this, kind](const kube::ObjectChange& change) { OnOwned(kind, change); });
}

// Whether a cluster-scoped kind exists and may be read. Repeats the request until the API server answers.
bool Watches::MayList(const kube::Resource& resource, const std::stop_token& stop) {
  while (true) {
    const auto page = reader_.List(resource, {.limit = 1}, stop);
    if (page.ok() || stop.stop_requested()) return page.ok();
    const ErrorCode code = page.error().code;
    if (code == ErrorCode::kForbidden || code == ErrorCode::kNotFound) return false;
    log::Warning("cannot determine whether a kind may be read; trying again",
                 {{"kind", resource.kind}, {"error", page.error().ToString()}});
    PauseFor(std::chrono::seconds(1), stop);
  }
}

// A change of its labels may start or end this installation's responsibility for its jobs.
void Watches::OnNamespace(const kube::ObjectChange& change) {
  if (change.before != nullptr && change.after != nullptr) return;
  const std::string name = kube::KeyOf(ObjectOf(change)).name;
  for (const kube::Object& job : caches_.jobs.All()) {
    const kube::ObjectKey key = kube::KeyOf(*job);
    if (key.name_space == name) options_.on_job(key.ToString());
  }
}

// New nodes have no pods yet, and most changes of other nodes are irrelevant.
void Watches::OnNode(const kube::ObjectChange& change) {
  if (change.before == nullptr) return;
  if (change.after != nullptr &&
      reconcile::NodeFromJson(*change.before) == reconcile::NodeFromJson(*change.after)) {
    return;
  }
  const std::string name = kube::KeyOf(*change.before).name;
  for (const kube::Object& pod : caches_.pods.ByIndex(reconcile::IndexOfNode(name)))
    options_.on_job(KeyOfOwner(*pod));
}

void Watches::OnOwned(const std::string& kind, const kube::ObjectChange& change) {
  options_.on_owned(KeyOfOwner(ObjectOf(change)));
  if (change.after != nullptr) CheckOwner(kind, *change.after);
}

// Only the replica that leads the named job logs it.
void Watches::CheckOwner(const std::string& kind, const Json& object) {
  const Json* owner = kube::ControllerOf(object);
  if (owner != nullptr && options_.is_ours(StringAt(*owner, {"uid"}))) false_owners_.Check(kind, object);
}

}  // namespace lockstep
