#pragma once
// A plan's actions in the short form that tests compare: "create job-worker-0".

#include <string>
#include <vector>

#include "operator/reconcile/plan.h"

namespace lockstep::testing {

inline std::string TextOf(const reconcile::Action& action) {
  struct Text {
    std::string operator()(const reconcile::AddFinalizer&) const { return "add finalizer"; }
    std::string operator()(const reconcile::RemoveFinalizer&) const { return "remove finalizer"; }
    std::string operator()(const reconcile::ApplyService&) const { return "apply service"; }
    std::string operator()(const reconcile::ApplyConfigMap&) const { return "apply config map"; }
    std::string operator()(const reconcile::CreatePod& a) const {
      return "create " + StringAt(a.object, {"metadata", "name"});
    }
    std::string operator()(const reconcile::MarkPod& a) const {
      return "mark " + a.name + " as attempt " + std::to_string(a.attempt);
    }
    std::string operator()(const reconcile::DeletePod& a) const { return "delete " + a.name; }
    std::string operator()(const reconcile::DeleteJob&) const { return "delete the job"; }
  };
  return std::visit(Text{}, action);
}

inline std::vector<std::string> ActionsOf(const reconcile::Plan& plan) {
  std::vector<std::string> texts;
  for (const auto& entry : plan.actions) texts.push_back(TextOf(entry.action));
  return texts;
}

}  // namespace lockstep::testing
