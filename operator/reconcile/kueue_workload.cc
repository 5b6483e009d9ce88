#include "operator/reconcile/kueue_workload.h"

#include <algorithm>

#include "operator/reconcile/owned_objects.h"

namespace lockstep::reconcile {

const Json* WorkloadOf(const Observed& observed) {
  const auto found = observed.owned.find(KeyOfKind(kWorkloads));
  return found == observed.owned.end() ? nullptr : &found->second;
}

const Json* FindWorkloadCondition(const Json& workload, std::string_view type) {
  const Json* conditions = FindJson(workload, {"status", "conditions"});
  if (conditions == nullptr) return nullptr;
  const auto found = std::find_if(conditions->begin(), conditions->end(),
                                  [&](const Json& entry) { return StringAt(entry, {"type"}) == type; });
  return found == conditions->end() ? nullptr : &*found;
}

bool IsWorkloadTrue(const Json& workload, std::string_view type) {
  const Json* found = FindWorkloadCondition(workload, type);
  return found != nullptr && StringAt(*found, {"status"}) == "True";
}

bool HoldsQuota(const Json& workload) { return IsWorkloadTrue(workload, "QuotaReserved"); }

Json EntryOfPods(const Json* list) {
  if (list == nullptr) return Json::object();
  const auto found = std::find_if(list->begin(), list->end(),
                                  [](const Json& entry) { return StringAt(entry, {"name"}) == kPodSet; });
  return found == list->end() ? Json::object() : *found;
}

Json AssignmentOf(const Json& workload) {
  return EntryOfPods(FindJson(workload, {"status", "admission", "podSetAssignments"}));
}

std::set<std::string> FlavorsOf(const Json& workload) {
  std::set<std::string> names;
  const Json assigned = AssignmentOf(workload);
  if (const Json* flavors = FindJson(assigned, {"flavors"})) {
    for (const auto& [resource, name] : flavors->items()) names.insert(name.get<std::string>());
  }
  return names;
}

}  // namespace lockstep::reconcile
