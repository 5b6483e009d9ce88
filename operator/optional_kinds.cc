#include "operator/optional_kinds.h"

#include <algorithm>
#include <utility>

#include "operator/reconcile/gang.h"
#include "operator/reconcile/kueue_priority.h"
#include "operator/reconcile/kueue_workload.h"
#include "operator/reconcile/owned_objects.h"
#include "runtime/common/base/log.h"
#include "runtime/common/base/pause.h"

namespace lockstep {

OptionalKinds::OptionalKinds(kube::KubeReader& reader, reconcile::Caches& caches,
                             OptionalKindsOptions options)
    : reader_(reader), caches_(caches), options_(std::move(options)) {}

void OptionalKinds::Start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

void OptionalKinds::Run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const bool knows_gangs = LookForGangKinds(stop);
    const bool knows_kueue = LookForKueue(stop);
    Serve(stop);
    has_looked_ = true;
    PauseFor(knows_gangs && knows_kueue ? options_.period : options_.retry, stop);
  }
}

OptionalKinds::Presence OptionalKinds::Look(const kube::Resource& resource, const std::string& name_space,
                                            const std::stop_token& stop) {
  const std::string key = reconcile::KeyOfKind(resource);
  const auto page = reader_.List(resource, {.name_space = name_space, .limit = 1}, stop);
  const bool is_known =
      page.ok() || page.error().code == ErrorCode::kForbidden || page.error().code == ErrorCode::kNotFound;
  if (is_known) {
    warned_.erase(key);
    return page.ok() ? Presence::kServed : Presence::kAbsent;
  }
  if (!stop.stop_requested() && warned_.insert(key).second) {
    log::Warning("cannot determine whether a kind may be read; trying again",
                 {{"kind", key}, {"error", page.error().ToString()}});
  }
  return Presence::kUnknown;
}

// Only the newest served version of a group counts, so an older version is decided after a newer one. A
// kind that is absent is not looked for again: if a gang appeared while pods of a job run, only some of the
// pods would be members.
bool OptionalKinds::LookForGangKinds(const std::stop_token& stop) {
  std::set<std::string> known_groups;
  bool is_all_known = true;
  for (const Found& found : found_) known_groups.emplace(found.kind.group);
  for (const kube::Resource& resource : reconcile::kGangKinds) {
    const std::string key = reconcile::KeyOfKind(resource);
    if (absent_.contains(key) || known_groups.contains(std::string(resource.group))) continue;
    const Presence presence = Look(resource, options_.name_spaces.front(), stop);
    if (presence == Presence::kAbsent) {
      absent_.insert(key);
      continue;
    }
    known_groups.emplace(resource.group);
    is_all_known = is_all_known && presence == Presence::kServed;
    if (presence != Presence::kServed) continue;
    Found found{.kind = resource};
    AddOwned(found, resource);
    Begin(std::move(found));
  }
  return is_all_known;
}

// Flavors and classes are cluster-scoped, like nodes.
bool OptionalKinds::LookForKueue(const std::stop_token& stop) {
  const bool is_found = std::any_of(found_.begin(), found_.end(),
                                    [](const Found& found) { return found.kind == reconcile::kWorkloads; });
  if (is_found) return true;
  for (const auto& [resource, name_space] : {std::pair(reconcile::kWorkloads, options_.name_spaces.front()),
                                             std::pair(reconcile::kFlavors, std::string())}) {
    const Presence presence = Look(resource, name_space, stop);
    if (presence != Presence::kServed) return presence == Presence::kAbsent;
  }
  const auto changed = [this](const auto&) { options_.on_served(); };
  Found found{.kind = reconcile::kWorkloads};
  const std::pair<kube::Resource, kube::Store&> classes[] = {
      {reconcile::kPriorityClasses, caches_.priority_classes},
      {reconcile::kWorkloadPriorityClasses, caches_.workload_priority_classes}};
  for (const auto& [resource, store] : classes) {
    const Presence presence = Look(resource, "", stop);
    if (presence == Presence::kUnknown) return false;
    if (presence == Presence::kServed) {
      Add(found, resource, store, changed);
    } else {
      log::Info("may not read these: jobs that name one do not queue", {{"kind", resource.kind}});
    }
  }
  Add(found, reconcile::kFlavors, caches_.flavors, changed);
  AddOwned(found, reconcile::kWorkloads);
  Begin(std::move(found));
  return true;
}

void OptionalKinds::Add(Found& found, const kube::Resource& resource, kube::Store& store,
                        const kube::Informer::Handler& handler) {
  found.informers.push_back(
      std::make_unique<kube::Informer>(reader_, kube::InformerOptions{.resource = resource}, store, handler));
}

void OptionalKinds::AddOwned(Found& found, const kube::Resource& resource) {
  const std::string key = reconcile::KeyOfKind(resource);
  for (const std::string& name_space : options_.name_spaces) {
    found.informers.push_back(std::make_unique<kube::Informer>(
        reader_, kube::InformerOptions{resource, name_space, options_.selector, {}}, caches_.owned.at(key),
        [this, key](const kube::ObjectChange& change) { options_.on_owned(key, change); }));
  }
}

void OptionalKinds::Begin(Found found) {
  for (const auto& informer : found.informers) informer->Start();
  found_.push_back(std::move(found));
}

// A kind whose first list is late is served after a later attempt.
void OptionalKinds::Serve(const std::stop_token& stop) {
  constexpr Milliseconds kPoll{5};
  for (Milliseconds waited{}; waited < options_.sync_patience && !stop.stop_requested(); waited += kPoll) {
    bool is_all_served = true;
    for (Found& found : found_) {
      const bool is_filled = std::all_of(found.informers.begin(), found.informers.end(),
                                         [](const auto& informer) { return informer->synced(); });
      is_all_served = is_all_served && is_filled;
      if (!is_filled || std::exchange(found.is_served, true)) continue;
      log::Info("found an optional kind", {{"kind", reconcile::KeyOfKind(found.kind)}});
      caches_.Serve(found.kind);
      options_.on_served();
    }
    if (is_all_served) return;
    PauseFor(kPoll, stop);
  }
}

}  // namespace lockstep
