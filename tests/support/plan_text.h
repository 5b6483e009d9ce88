#pragma once
// A plan in the short form that tests compare: its actions ("create job-worker-0"), a condition, its events.

#include <string>
#include <string_view>
#include <vector>

#include "operator/reconcile/plan.h"
#include "runtime/common/api/conditions.h"

namespace lockstep::testing {

inline std::string TextOf(const reconcile::Action& action) {
  struct Text {
    std::string operator()(const reconcile::ClaimJob&) const { return "claim the job"; }
    std::string operator()(const reconcile::RemoveFinalizer&) const { return "remove finalizer"; }
    std::string operator()(const reconcile::ApplyObject& a) const {
      return "apply " + std::string(a.resource.kind);
    }
    std::string operator()(const reconcile::DeleteObject& a) const {
      return "delete " + std::string(a.resource.kind);
    }
    std::string operator()(const reconcile::PatchStatus& a) const {
      return "patch status of " + std::string(a.resource.kind);
    }
    std::string operator()(const reconcile::CreatePod& a) const {
      return "create " + StringAt(a.object, {"metadata", "name"});
    }
    std::string operator()(const reconcile::MarkPod& a) const {
      return "mark " + a.name + " as attempt " + std::to_string(a.attempt);
    }
    std::string operator()(const reconcile::DeletePod& a) const {
      return "delete " + a.name + (a.by_force ? " by force" : "");
    }
    std::string operator()(const reconcile::StartRemoval&) const { return "start removal"; }
    std::string operator()(const reconcile::EndRemoval&) const { return "end removal"; }
    std::string operator()(const reconcile::DeleteJob&) const { return "delete the job"; }
  };
  return std::visit(Text{}, action);
}

inline std::vector<std::string> ActionsOf(const reconcile::Plan& plan) {
  std::vector<std::string> texts;
  for (const auto& entry : plan.actions) texts.push_back(TextOf(entry.action));
  return texts;
}

inline api::Condition ConditionOf(const reconcile::Plan& plan, std::string_view type) {
  const api::Condition* found = api::FindCondition(plan.status.conditions, type);
  return found == nullptr ? api::Condition{} : *found;
}

inline std::vector<std::string> EventsOf(const reconcile::Plan& plan) {
  std::vector<std::string> reasons;
  for (const auto& event : plan.events) reasons.push_back(event.reason);
  return reasons;
}

}  // namespace lockstep::testing
