#include "operator/reconcile/plan_objects.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "operator/reconcile/desired.h"
#include "operator/reconcile/gang.h"
#include "operator/reconcile/owned_objects.h"

namespace lockstep::reconcile {
namespace {

void Delete(const Observed& observed, const kube::Resource& resource, const std::string& why,
            std::vector<PlannedAction>& actions) {
  const auto found = observed.owned.find(KeyOfKind(resource));
  if (found == observed.owned.end()) return;
  actions.push_back(
      {DeleteObject{resource, kube::KeyOf(found->second).name, kube::UidOf(found->second)}, why});
}

// While pods are created by the hundred, a Service with a selector has all of its endpoints written again
// after every few pods: a quarter of the total work for a thousand pods (tests/bench/HISTORY.md). Therefore
// the selector is set with the last pods, or with the job's first round if some pods cannot be created. Until
// then the Service reserves its name, which the job needs. A selector that is already set is kept.
bool MaySelect(const Observed& observed) {
  const auto missing =
      static_cast<int64_t>(observed.job.spec.pod_count()) - static_cast<int64_t>(observed.pods.size());
  return !observed.pods.empty() &&
         (missing <= static_cast<int64_t>(kPodsPerPass) || observed.job.status.rendezvous);
}

void HoldSelectorBack(std::vector<OwnedObject>& objects) {
  for (OwnedObject& desired : objects) {
    if (desired.resource == kube::kServices) desired.object["spec"].erase("selector");
  }
}

}  // namespace

void PlanObjects(const Observed& observed, std::vector<PlannedAction>& actions) {
  std::vector<OwnedObject> objects = DesiredOwnedObjects(observed.job, observed.settings);
  if (!MaySelect(observed)) HoldSelectorBack(objects);
  if (auto group = DesiredPodGroup(observed.job, observed.served)) objects.push_back(*std::move(group));
  std::set<std::string> wanted;
  for (OwnedObject& desired : objects) {
    wanted.insert(KeyOfKind(desired.resource));
    const auto found = observed.owned.find(KeyOfKind(desired.resource));
    const bool exists = found != observed.owned.end();
    if (exists && IsAsDesired(desired, found->second)) continue;
    if (exists && desired.is_immutable) {
      if (observed.pods.empty())
        Delete(observed, desired.resource, "the job needs another " + std::string(desired.resource.kind),
               actions);
      continue;
    }
    const std::string kind(desired.resource.kind);
    actions.push_back({ApplyObject{desired.resource, std::move(desired.object)},
                       "the " + kind + (exists ? " differs from what the job needs" : " is missing")});
  }
  const auto delete_unwanted = [&](const kube::Resource& resource) {
    if (wanted.contains(KeyOfKind(resource))) return;
    Delete(observed, resource, "the job needs no " + std::string(resource.kind), actions);
  };
  std::for_each(kOwnedKinds.begin(), kOwnedKinds.end(), delete_unwanted);
  std::for_each(kGangKinds.begin(), kGangKinds.end(), delete_unwanted);
}

// Everything else stays as it is, because the spec may be invalid.
void PlanAuthority(const Observed& observed, std::vector<PlannedAction>& actions) {
  const std::string& authority = observed.settings.ca_pem;
  const auto found = observed.owned.find(KeyOfKind(kube::kConfigMaps));
  if (authority.empty() || found == observed.owned.end()) return;
  if (StringAt(found->second, {"data", kCaKey}) == authority) return;
  Json data = found->second.value("data", Json::object());
  data[kCaKey] = authority;
  const Json metadata = OwnedMetadata(observed.job, kube::KeyOf(found->second).name);
  actions.push_back({ApplyObject{kube::kConfigMaps, {{"metadata", metadata}, {"data", std::move(data)}}},
                     "the authority of the rendezvous has changed"});
}

void PlanObjectsOfFinished(const Observed& observed, std::vector<PlannedAction>& actions) {
  Delete(observed, kAutoscalers, "the job has finished", actions);
}

}  // namespace lockstep::reconcile
