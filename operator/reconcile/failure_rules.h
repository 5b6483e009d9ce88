#pragma once
// What one failure means for its job: failurePolicy.rules first, then the defaults. Pure.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "operator/reconcile/pods.h"
#include "runtime/common/api/training_job.h"
#include "runtime/common/rendezvous/view.h"

namespace lockstep::reconcile {

// How a pod, or a rank in it, ended, as failurePolicy.rules match it.
struct Failure {
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::optional<int> exit_code;
  std::map<std::string, std::string> conditions;  // pod conditions: status by type
};

[[nodiscard]] Failure FailureOf(const Pod& pod);
[[nodiscard]] Failure FailureOf(const rendezvous::Departure& departure);

enum class Remedy {
  kFailJob,
  kCharge,   // the pod is replaced, which uses up one of maxRestarts
  kForgive,  // the pod is replaced at no charge
  kShrink,   // the job continues without the pod
};

struct FailureVerdict {
  Remedy remedy = Remedy::kCharge;
  bool suspects_node = false;  // the next pod should avoid this node
  api::FailureCause cause = api::FailureCause::kInfrastructure;
  std::string_view reason;  // for kFailJob: from api::reason
  std::string message;      // "pod a-worker-1: exit code 3: no such data set"
};

// The first rule that matches; null if none does.
[[nodiscard]] const api::FailureRule* FindRule(const api::FailurePolicy& policy, const Failure& failure);
// For a pod that failed.
[[nodiscard]] FailureVerdict JudgeFailure(const Pod& pod, const api::FailurePolicy& policy);
// For a rank that died in a running pod, where it is respawned at no charge. nullopt: nothing else is to be
// done.
[[nodiscard]] std::optional<FailureVerdict> JudgeDeparture(const rendezvous::Departure& departure,
                                                           const api::FailurePolicy& policy);

}  // namespace lockstep::reconcile
